"""Generates docs/contracts.md: every requirement of the contracts, and the tests that show it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_INTRODUCTION = """\
<!-- Generated from tests/contracts and the marks of the tests by `make docs`. Change those, not this page. -->
# Contracts, line by line

Each line is one requirement of a contract in our words, and the tests that fail when it is broken. A test names its
requirements: `@pytest.mark.contract("S9.1-1")`. A decision record that is named says how we meet a requirement, or why
we do something else.
"""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of a contract."""

    id: str
    says: str
    decision: int | None = None
    """The number of the decision record that says how we meet it, or why we do something else."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a contract."""

    number: str
    title: str
    requirements: Sequence[Requirement]


@dataclass(frozen=True, slots=True)
class Contract:
    """What one contract requires."""

    title: str
    sections: Sequence[Section]

    @property
    def requirements(self) -> Iterator[Requirement]:
        return (requirement for section in self.sections for requirement in section.requirements)


@dataclass(frozen=True, slots=True)
class MarkedTest:
    """A test that shows requirements. The path is relative to the repository."""

    path: str
    name: str


def contracts(repository: Path) -> list[Contract]:
    """The contracts whose requirements are listed in tests/contracts."""
    files = sorted((repository / "tests/contracts").glob("*.yaml"))
    return [_contract(yaml.safe_load(file.read_text(encoding="utf-8"))) for file in files]


def _contract(content: Mapping[str, Any]) -> Contract:
    sections = (
        Section(str(each["number"]), each["title"], [Requirement(**fields) for fields in each["requirements"]])
        for each in content["sections"]
    )
    return Contract(content["title"], list(sections))


def marked_tests(repository: Path) -> dict[str, list[MarkedTest]]:
    """The tests by the ids of the requirements they show. The files are parsed and not imported: imports are slow."""
    found: dict[str, list[MarkedTest]] = {}
    for file in sorted((repository / "tests").rglob("test_*.py")):
        if "node_modules" in file.parts:
            continue
        text = file.read_text(encoding="utf-8")
        if "mark.contract(" not in text:
            continue
        for name, identifier in _marks(ast.parse(text)):
            found.setdefault(identifier, []).append(MarkedTest(file.relative_to(repository).as_posix(), name))
    return found


def _marks(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Names of tests with the ids in their marks."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                for identifier in _ids(decorator):
                    yield node.name, identifier


def _ids(decorator: ast.expr) -> list[str]:
    match decorator:
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark"), attr="contract"), args=arguments):
            return [ast.literal_eval(argument) for argument in arguments]
        case _:
            return []


def contracts_page(repository: Path) -> str:
    tests = marked_tests(repository)
    parts = [_INTRODUCTION]
    for contract in contracts(repository):
        parts.append(f"\n## {contract.title}\n\n{_summary(contract, tests)}\n")
        for section in contract.sections:
            lines = [_line(requirement, tests.get(requirement.id, [])) for requirement in section.requirements]
            table = ["| id | requirement | shown by |", "|---|---|---|", *lines]
            parts.append(f"\n### {section.number} {section.title}\n\n" + "\n".join(table) + "\n")
    return "".join(parts)


def _summary(contract: Contract, tests: Mapping[str, Sequence[MarkedTest]]) -> str:
    requirements = list(contract.requirements)
    shown = sum(1 for each in requirements if each.id in tests)
    return f"{len(requirements)} requirements: {shown} shown by tests, {len(requirements) - shown} decided otherwise."


def _line(requirement: Requirement, tests: Sequence[MarkedTest]) -> str:
    evidence = [f"[`{test.name}`](../{test.path})" for test in tests]
    if requirement.decision is not None:
        evidence.append(f"decision {requirement.decision:04}")
    says = requirement.says.replace("|", "\\|")
    return f"| {requirement.id} | {says} | {'<br>'.join(evidence)} |"
