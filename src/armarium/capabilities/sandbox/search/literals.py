"""Extracts the literal texts that every match of a pattern contains: searching for them first is many times faster.

The result is a list of clauses. Every line that matches the pattern contains at least one literal of each clause.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from armarium.capabilities.sandbox.search import syntax

_MAX_ALTERNATIVES = 8
_MAX_LENGTH = 64


class Literal(NamedTuple):
    text: str
    fold: bool = False
    """Ignore the case of ASCII letters; `text` is in lower case."""
    loose: bool = False
    """Whether it also matches texts that the pattern does not."""

    def followed_by(self, other: Literal) -> Literal:
        """The concatenation. It ignores case if one of the parts does."""
        if self.fold == other.fold:
            return Literal(self.text + other.text, self.fold, self.loose or other.loose)
        exact = self.text if other.fold else other.text
        loose = self.loose or other.loose or any(char.isalpha() or not char.isascii() for char in exact)
        return Literal((self.text + other.text).lower(), True, loose)


_NOTHING = Literal("")
Clause = tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Requirements:
    """Literals of which every matching line contains at least one."""

    clauses: tuple[Clause, ...]
    exact: bool
    """Whether a line matches if and only if it contains a literal of the only clause."""


def requirements(node: syntax.Node | None) -> Requirements:
    if node is None:
        return Requirements((), exact=False)
    clauses = tuple(dict.fromkeys(_clauses(node)))
    whole = _language(node)
    exact = (
        whole is not None
        and clauses == (whole,)
        and not syntax.has_anchor(node)
        and not any(literal.loose for literal in whole)
    )
    return Requirements(clauses, exact)


def _language(node: syntax.Node) -> Clause | None:
    """All texts that the node matches, if they are few and short; otherwise None."""
    match node:
        case syntax.Char(text, fold):
            return (Literal(text, fold),)
        case syntax.Anchor():
            return (_NOTHING,)
        case syntax.Unknown():
            return None
        case syntax.Choice(branches):
            return _union(_language(branch) for branch in branches)
        case syntax.Sequence(parts):
            return _joined(parts)
        case syntax.Repeat(part, 0, 1):
            known = _language(part)
            return None if known is None else tuple(dict.fromkeys((_NOTHING, *known)))
        case syntax.Repeat(part, least, most):
            return _joined((part,) * least) if least == most and 0 < least <= _MAX_LENGTH else None


def _joined(parts: tuple[syntax.Node, ...]) -> Clause | None:
    texts: Clause | None = (_NOTHING,)
    for part in parts:
        known = _language(part)
        texts = None if known is None else _product(texts, known)
        if texts is None:
            return None
    return texts


def _product(heads: Clause, tails: Clause) -> Clause | None:
    if len(heads) * len(tails) > _MAX_ALTERNATIVES:
        return None
    joined = tuple(head.followed_by(tail) for head, tail in product(heads, tails))
    return None if any(len(literal.text) > _MAX_LENGTH for literal in joined) else joined


def _clauses(node: syntax.Node) -> list[Clause]:
    known = _language(node)
    if known is not None:
        return _useful(known)
    match node:
        case syntax.Sequence(parts):
            return _clauses_of_sequence(parts)
        case syntax.Choice(branches):
            # The best clause of each branch.
            return _useful(_union(max(_clauses(branch), key=_promise, default=None) for branch in branches))
        case syntax.Repeat(part, least) if least > 0:
            return _clauses(part)
        case _:
            return []


def _useful(clause: Clause | None) -> list[Clause]:
    return [clause] if clause and all(literal.text for literal in clause) else []


def _union(clauses: Iterable[Clause | None]) -> Clause | None:
    every: list[Literal] = []
    for clause in clauses:
        if clause is None or len(every) + len(clause) > _MAX_ALTERNATIVES:
            return None
        every.extend(clause)
    return tuple(dict.fromkeys(every))


def _promise(clause: Clause) -> tuple[int, int]:
    return min(len(literal.text) for literal in clause), -len(clause)


def _clauses_of_sequence(parts: tuple[syntax.Node, ...]) -> list[Clause]:
    found: list[Clause] = []
    run: Clause = (_NOTHING,)
    for part in parts:
        known = _language(part)
        longer = None if known is None else _product(run, known)
        if longer is not None:
            run = longer
            continue
        # A part that is repeated at least once follows the run directly, and again comes directly before the rest.
        once = _language(part.part) if isinstance(part, syntax.Repeat) and part.least > 0 else known
        longer = None if once is None else _product(run, once)
        found += _useful(longer or run)
        if once is None:
            found += _clauses(part)
        run = once or (_NOTHING,)
    return found + _useful(run)
