"""Where in its document a passage stands, and how that is written as a citation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

SpanKind = Literal["lines", "page", "time"]


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines `start` to `end`, counted from 1, both included."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Page:
    """One page or slide, counted from 1."""

    number: int


@dataclass(frozen=True, slots=True)
class Time:
    """A stretch of a recording."""

    start_ms: int
    end_ms: int


Span = Lines | Page | Time


def citation(rel_path: str, span: Span) -> str:
    """The citation as answers carry it: `[a.py:L3-L9]`, `[a.pdf#p=3]`, `[a.mp3@t=00:05-01:10]`."""
    match span:
        case Lines(start, end):
            return f"[{rel_path}:L{start}-L{end}]"
        case Page(number):
            return f"[{rel_path}#p={number}]"
        case Time(start_ms, end_ms):
            return f"[{rel_path}@t={_clock(start_ms)}-{_clock(end_ms)}]"


def _clock(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    return f"{minutes:02d}:{seconds:02d}"


def span_as_json(span: Span) -> dict[str, Any]:
    """The span as tools answer it."""
    match span:
        case Lines(start, end):
            return {"kind": "lines", "start_line": start, "end_line": end}
        case Page(number):
            return {"kind": "page", "page": number}
        case Time(start_ms, end_ms):
            return {"kind": "time", "start_ms": start_ms, "end_ms": end_ms}


def span_from_json(span: dict[str, Any]) -> Span:
    """The span that `span_as_json` wrote."""
    if span["kind"] == "page":
        return Page(span["page"])
    if span["kind"] == "time":
        return Time(span["start_ms"], span["end_ms"])
    return Lines(span["start_line"], span["end_line"])


def span_as_columns(span: Span) -> tuple[SpanKind, int, int]:
    """The span as a row keeps it: kind, start, end."""
    match span:
        case Lines(start, end):
            return "lines", start, end
        case Page(number):
            return "page", number, number
        case Time(start_ms, end_ms):
            return "time", start_ms, end_ms


def span_from_columns(kind: str, start: int, end: int) -> Span:
    """The span that `span_as_columns` took apart."""
    if kind == "page":
        return Page(start)
    return Time(start, end) if kind == "time" else Lines(start, end)
