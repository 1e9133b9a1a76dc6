"""The location of a chunk in its document, and its citation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

SpanKind = Literal["lines", "page", "time"]
_JSON_FIELDS = {"lines": ("start_line", "end_line"), "page": ("page",), "time": ("start_ms", "end_ms")}


@dataclass(frozen=True, slots=True)
class LineSpan:
    """Lines `start` to `end`, counted from 1, both included."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PageSpan:
    """One page or slide, counted from 1."""

    number: int


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A time range of a recording."""

    start_ms: int
    end_ms: int


Span = LineSpan | PageSpan | TimeSpan


def citation(rel_path: str, span: Span) -> str:
    """The citation of a span: `[a.py:L3-L9]`, `[a.pdf#p=3]`, `[a.mp3@t=00:05-01:10]`."""
    match span:
        case LineSpan(start, end):
            return f"[{rel_path}:L{start}-L{end}]"
        case PageSpan(number):
            return f"[{rel_path}#p={number}]"
        case TimeSpan(start_ms, end_ms):
            return f"[{rel_path}@t={_clock(start_ms)}-{_clock(end_ms)}]"


def _clock(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    return f"{minutes:02d}:{seconds:02d}"


def span_as_json(span: Span) -> dict[str, Any]:
    """The span in tool results."""
    kind, *numbers = span_as_columns(span)
    return {"kind": kind, **dict(zip(_JSON_FIELDS[kind], numbers, strict=False))}


def span_from_json(span: dict[str, Any]) -> Span:
    numbers = [span[field] for field in _JSON_FIELDS[span["kind"]]]
    return span_from_columns(span["kind"], numbers[0], numbers[-1])


def span_as_columns(span: Span) -> tuple[SpanKind, int, int]:
    """The span as columns of a row: kind, start, end."""
    match span:
        case LineSpan(start, end):
            return "lines", start, end
        case PageSpan(number):
            return "page", number, number
        case TimeSpan(start_ms, end_ms):
            return "time", start_ms, end_ms


def span_from_columns(kind: str, start: int, end: int) -> Span:
    if kind == "page":
        return PageSpan(start)
    return TimeSpan(start, end) if kind == "time" else LineSpan(start, end)
