"""Generates docs/benchmarks.md: one row per question with our figure, the peer's and the ratio."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

QUESTIONS = Path(__file__).with_name("benchmark_questions.yaml")
INTRODUCTION = """\
<!-- Generated from benchmarks/results by `make docs`. Run a benchmark to change a figure. -->

# Benchmarks

Each file in `benchmarks/` asks one question. It measures Armarium and a peer in the same run and writes its figures to
`benchmarks/results/`. `make bench` runs all of them, `make bench BENCH=benchmarks/grep_vs_ripgrep.py` one.

The figures below come from two cores of a shared virtual machine, where single runs differ by up to a third. Compare
ratios, not times. The ratio is our figure divided by the peer's; the column *better* says which direction is better.
CPU is the time of all threads together.
"""

Figures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the page: a question, and where its figures are in a result file."""

    question: str
    benchmark: str
    ours: str
    """A field of the selected case; `a|b` is the larger of two fields."""
    case: Mapping[str, Any]
    """The case: the fields that identify it. Text may have wildcards."""
    peer: str = ""
    """What the peer is. Without a peer there is no ratio."""
    theirs: str = ""
    peer_case: Mapping[str, Any] | None = None
    """The case with the peer's figure, when it is another one."""
    better: str = "lower"


class UnknownCase(LookupError):
    """A question names a benchmark, a case or a field that the results do not have."""


def benchmarks_page(results: Path, questions: Path = QUESTIONS) -> str:
    """The whole page. Raises UnknownCase when questions and results do not fit together."""
    found = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(results.glob("*.json"))}
    sections = yaml.safe_load(questions.read_text(encoding="utf-8"))
    asked = {row["benchmark"] for rows in sections.values() for row in rows}
    if missing := sorted(found.keys() - asked):
        raise UnknownCase(f"no question in {questions.name} shows the results of {', '.join(missing)}")
    return "\n".join([INTRODUCTION, *_sections(sections, found), *_goals(found)])


def _sections(sections: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    for title, rows in sections.items():
        yield f"## {title}\n"
        yield "| question | Armarium | peer | ratio | better |\n|---|---|---|---|---|"
        for row in (Row(**row) for row in rows):
            yield _row(row, found)
        yield ""


def _row(row: Row, found: Mapping[str, Any]) -> str:
    ours = _figure(found, row.benchmark, row.case, row.ours)
    question = f"[{row.question}](../benchmarks/{row.benchmark}.py)"
    if not row.peer:
        return f"| {question} | {_readable(row.ours, ours)} | | | {row.better} |"
    field = row.theirs or row.ours
    theirs = _figure(found, row.benchmark, row.peer_case or row.case, field)
    ratio = _ratio(ours / theirs) if theirs else ""
    peer = f"{_readable(field, theirs)}, {row.peer}"
    return f"| {question} | {_readable(row.ours, ours)} | {peer} | {ratio} | {row.better} |"


def _goals(found: Mapping[str, Any]) -> Iterator[str]:
    yield "## Goals\n"
    yield "A benchmark states a goal. The result file records whether the last run met it.\n"
    yield "| benchmark | goal | met |\n|---|---|---|"
    for name, result in found.items():
        goal = str(result["goal"]).replace("|", r"\|")
        yield f"| [{name}](../benchmarks/results/{name}.json) | {goal} | {'yes' if result['met'] else '**no**'} |"
    yield ""


def _figure(found: Mapping[str, Any], benchmark: str, case: Mapping[str, Any], fields: str) -> float:
    figures: list[Figures] = found[benchmark]["figures"] if benchmark in found else []
    for candidate in figures:
        if all(_fits(candidate.get(name), wanted) for name, wanted in case.items()):
            values = [candidate.get(field) for field in fields.split("|")]
            if all(isinstance(value, int | float) for value in values):
                return max(value for value in values if value is not None)
    raise UnknownCase(f"{benchmark}: no case {dict(case)} with {fields}")


def _fits(value: object, wanted: object) -> bool:
    return fnmatchcase(value, wanted) if isinstance(value, str) and isinstance(wanted, str) else value == wanted


def _readable(field: str, value: float) -> str:
    for suffix, written in _UNITS.items():
        if field.endswith(suffix):
            return written(value)
    return _number(value)


def _duration(seconds: float) -> str:
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1 or not seconds:
            return f"{_number(seconds * factor)} {unit}"
    return f"{_number(seconds * 1e6)} µs"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if 0.1 <= value < 10 else f"{value:.2g}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"


_UNITS: dict[str, Callable[[float], str]] = {
    "_ms": lambda value: _duration(value / 1000),
    "ms_per_call": lambda value: _duration(value / 1000),
    "mb_a_second": lambda value: f"{_number(value)} MB/s",
    "mb_per_cpu_second": lambda value: f"{_number(value)} MB/s",
    "megabytes_per_cpu_second": lambda value: f"{_number(value)} MB/s",
    "files_a_second": lambda value: f"{_number(value)}/s",
    "per_second": lambda value: f"{_number(value)}/s",
    "_mb": lambda value: f"{_number(value)} MB",
    "_kb": lambda value: f"{_number(value)} kB",
    "_s": _duration,
}
