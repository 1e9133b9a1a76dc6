"""Recognises the findings of earlier scans of a file in those of a new one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from armarium.capabilities.registry.changes.reported_findings import without_numbers
from armarium.capabilities.registry.contents import similarity
from armarium.capabilities.registry.model import ReportEntry
from armarium.capabilities.registry.storage.findings import KnownFinding

_NEAREST = 24
"""How many findings of a rule each one is compared with, those nearest to the expected line."""
_MIN_SIMILARITY = 0.5
_MIN_SIMILARITY_ALONE = 0.75
"""Without the same message."""
_MAX_COMPARED = 10_000
"""The most pairs of repeated findings that are compared. More are paired in their order."""


@dataclass(slots=True, eq=False)
class Candidate:
    """A reported finding of a file, with the content at its place, and its metadata as stored."""

    reported: ReportEntry
    place: bytes
    metadata: str
    known: KnownFinding | None = None
    """The earlier finding that it is."""

    @property
    def rule_id(self) -> str:
        return self.reported.rule_id

    @property
    def message(self) -> str:
        return self.reported.message

    @property
    def severity(self) -> str:
        return self.reported.severity

    @property
    def line_start(self) -> int | None:
        return self.reported.line_start

    @property
    def fingerprint(self) -> str | None:
        return self.reported.fingerprint


_Either = KnownFinding | Candidate
_Key = Callable[[_Either], Hashable | None]
"""What the same finding has in common in both reports; None if it says nothing."""


def match(known: Iterable[KnownFinding], candidates: Iterable[Candidate]) -> None:
    """Give each candidate the earlier finding that it is, if there is one. The surest ways of recognition come first.
    Different fingerprints mean different findings, unless all else is equal: some contain the line."""
    left, new = [*known], [*candidates]
    if not left or not new or _are_unchanged(left, new):
        return
    pairing = _Pairs(left, new)
    pairing.pair(lambda each: each.fingerprint)
    pairing.pair(lambda each: (each.place, each.rule_id, each.message) if each.place else None)
    pairing.separate_by_fingerprint()
    # Where one side has no content, the line is all there is. Findings of earlier versions have none.
    pairing.pair_without_content(lambda each: (each.rule_id, each.line_start, each.message))
    pairing.pair_without_content(lambda each: (each.rule_id, each.line_start) if each.line_start else None)
    pairing.pair(lambda each: (each.place, each.rule_id) if each.place else None)
    pairing.pair_shifted()
    pairing.pair_similar()


def _are_unchanged(known: Iterable[KnownFinding], candidates: Iterable[Candidate]) -> bool:
    """Whether every candidate is an earlier finding in all respects, and then has it. Most files do not change."""
    exact: dict[Hashable, KnownFinding] = {}
    for one in known:
        key = (one.rule_id, one.line_start, one.message, one.fingerprint, one.place, one.severity, one.metadata)
        if key not in exact or exact[key].status == "fixed":
            exact[key] = one
    found: list[tuple[Candidate, KnownFinding]] = []
    for new in candidates:
        it = new.reported
        key = (it.rule_id, it.line_start, it.message, it.fingerprint, new.place, it.severity, new.metadata)
        if (same := exact.pop(key, None)) is None:
            return False
        found.append((new, same))
    for new, same in found:
        new.known = same
    return True


class _Pairs:
    """The findings that are not paired yet, and the lines of those that are."""

    def __init__(self, known: list[KnownFinding], new: list[Candidate]) -> None:
        self._known, self._new = known, new
        self._taken: set[int] = set()
        self._lines: dict[int, int] = {}
        """The new line by the earlier line, of paired findings."""
        self._sorted_lines: list[int] = []
        self._contradict: Callable[[KnownFinding, Candidate], bool] = lambda known, new: False

    def separate_by_fingerprint(self) -> None:
        """From now on, two findings with fingerprints are different ones: equal fingerprints are paired already."""
        self._contradict = lambda known, new: bool(known.fingerprint and new.fingerprint)

    def pair(self, key: _Key) -> None:
        """Pair the findings with equal keys."""
        self._pair(self._known, self._new, key)

    def pair_without_content(self, key: _Key) -> None:
        """Pair those with equal keys of which one has no content."""
        self._pair([each for each in self._known if not each.place], self._new, key)
        self._pair(self._known, [each for each in self._new if not each.place], key)

    def pair_shifted(self) -> None:
        """Pair the findings of earlier versions on other lines in their order, if none came or went."""
        shifted = [each for each in self._known if not each.place]
        self._pair(shifted, [each for each in self._new if each.place], _rule_and_message, only_if_as_many=True)

    def pair_similar(self) -> None:
        """Pair findings of one rule in similar places, the most similar first."""
        with_place = [each for each in self._new if each.place]
        pairs: list[tuple[float, int, KnownFinding, Candidate]] = []
        for known, new in _groups([each for each in self._known if each.place], with_place, lambda it: it.rule_id):
            ordered = sorted(new, key=_line)
            lines = [_line(each) for each in ordered]
            for one in known:
                expected = self._expected(one)
                start = max(0, bisect_left(lines, expected) - _NEAREST // 2)
                for other in ordered[start : start + _NEAREST]:
                    if (alike := self._likeness(one, other, expected)) is not None:
                        pairs.append((-alike, len(pairs), one, other))
        for _, _, one, other in sorted(pairs):
            self._take_if_free(one, other)
        self._drop_paired()

    def _likeness(self, known: KnownFinding, new: Candidate, expected: int) -> float | None:
        """How sure it is that two findings of one rule are the same; None if it is not."""
        if self._contradict(known, new):
            return None
        alike = similarity(known.place, new.place)
        same_message = _rule_and_message(known) == _rule_and_message(new)
        if alike < (_MIN_SIMILARITY if same_message else _MIN_SIMILARITY_ALONE):
            return None
        return alike + 0.2 * same_message + 0.1 * (_line(new) == expected)

    def _pair(
        self, known: list[KnownFinding], new: list[Candidate], key: _Key, *, only_if_as_many: bool = False
    ) -> None:
        if not known or not new:
            return
        repeated: list[tuple[list[KnownFinding], list[Candidate]]] = []
        for some, others in _groups(known, new, key):
            if len(some) == len(others) == 1:
                self._take_if_free(some[0], others[0])
            elif len(some) == len(others) or not only_if_as_many:
                repeated.append((some, others))
        for some, others in repeated:
            self._pair_repeated(some, others)
        self._drop_paired()

    def _pair_repeated(self, known: list[KnownFinding], new: list[Candidate]) -> None:
        """Pair findings that only their order tells apart. Where some came or went, the lines around them tell which
        stayed."""
        if len(known) != len(new) and len(known) * len(new) <= _MAX_COMPARED:
            pairs = [(one, other) for one in known for other in new]
            far = [(abs(self._expected(one) - _line(other)), one.status == "fixed") for one, other in pairs]
            for _, (one, other) in sorted(zip(far, pairs, strict=True), key=lambda each: each[0]):
                self._take_if_free(one, other)
            return
        for one, other in zip(sorted(known, key=_order), sorted(new, key=_order), strict=False):
            self._take_if_free(one, other)

    def _take_if_free(self, known: KnownFinding, new: Candidate) -> None:
        if new.known is None and known.no not in self._taken and not self._contradict(known, new):
            new.known = known
            self._taken.add(known.no)
            if known.line_start and new.line_start:
                if known.line_start not in self._lines:
                    insort(self._sorted_lines, known.line_start)
                self._lines[known.line_start] = new.line_start

    def _drop_paired(self) -> None:
        self._known = [each for each in self._known if each.no not in self._taken]
        self._new = [each for each in self._new if each.known is None]

    def _expected(self, known: KnownFinding) -> int:
        """The line where an earlier finding would be now, by the nearest paired finding."""
        if not self._lines:
            return _line(known)
        line = _line(known)
        nearest = self._sorted_lines[max(0, bisect_right(self._sorted_lines, line) - 1)]
        return line + self._lines[nearest] - nearest


def _groups(
    known: Iterable[KnownFinding], new: Iterable[Candidate], key: _Key
) -> list[tuple[list[KnownFinding], list[Candidate]]]:
    """The findings of both sides with equal keys."""
    by_key: dict[Hashable, tuple[list[KnownFinding], list[Candidate]]] = {}
    for one in known:
        if (its := key(one)) is not None:
            by_key.setdefault(its, ([], []))[0].append(one)
    for other in new:
        if (its := key(other)) is not None and its in by_key:
            by_key[its][1].append(other)
    return [group for group in by_key.values() if group[1]]


def _rule_and_message(each: _Either) -> Hashable:
    return each.rule_id, without_numbers(each.message)


def _line(each: _Either) -> int:
    return each.line_start or 0


def _order(each: _Either) -> tuple[str, int, bool, str, str]:
    return without_numbers(each.message), _line(each), bool(each.fingerprint), each.severity, each.metadata
