"""The files of a report: their findings, grouped, and with the earlier findings that they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

from armarium.capabilities.registry.changes.matches import Candidate, match
from armarium.capabilities.registry.changes.renames import renamed_files
from armarium.capabilities.registry.changes.report_paths import ReportPaths, names_it_may_have
from armarium.capabilities.registry.changes.reported_findings import kind_of, normalised, stored_rule_id
from armarium.capabilities.registry.contents import MAX_FILE_BYTES, Contents, similarity
from armarium.capabilities.registry.errors import InvalidPath, RegistryError
from armarium.capabilities.registry.limits import metadata_json
from armarium.capabilities.registry.model import ReportEntry, ScanReport
from armarium.capabilities.registry.paths import ProjectPaths
from armarium.capabilities.registry.storage import files, findings
from armarium.capabilities.registry.storage.columns import has_unprintable
from armarium.capabilities.registry.storage.database import Writer
from armarium.capabilities.registry.storage.findings import KnownFinding, OpenFinding

OUTSIDE_PROJECT = "outside_project"
NOT_A_FILE = "not_a_file"
FILE_REMOVED = "file_removed"
"""The file was removed and does not exist: the report is outdated."""

DESCRIPTION = ("rule_id", "severity", "message", "suggestion", "line_start", "line_end")
"""The fields of a finding that tell it apart in a report, and whose change makes an event."""
description_of: Callable[[ReportEntry | KnownFinding], tuple[Any, ...]] = attrgetter(*DESCRIPTION)
_MIN_SIMILARITY_OF_SNIPPET = 0.8
"""A snippet that is less like the file is from another version of it."""

BaselineKey = tuple[str, str, str, str]
"""The source, file, rule and message of findings."""


@dataclass(slots=True)
class ScannedFile:
    path: str
    is_new: bool
    """Whether it is not registered."""
    entries: list[ReportEntry] = field(default_factory=list[ReportEntry])
    no: int = 0
    unseen: list[KnownFinding] = field(default_factory=list[KnownFinding])
    """The earlier findings of the source and category that were not reported again."""


class ReportedFiles:
    """The findings of a report by file, and those that are in none."""

    def __init__(self, writer: Writer, project: ProjectPaths, report: ScanReport) -> None:
        self._writer, self._project, self._report = writer, project, report
        self.files: dict[str, ScannedFile] = {}
        """By canonical path."""
        entries = list(report.findings)
        self.total = len(entries)
        self.duplicates = 0
        self.skipped = Counter(report.skipped)
        self._rules_skipped = frozenset(map(stored_rule_id, report.skipped_rules))
        self._skipped_paths: dict[str, None] = {}
        named = dict.fromkeys([*(each.path for each in entries), *(report.covered or ())])
        self.paths = ReportPaths(project, named, report.prefixes, report.roots)
        places: dict[str, ScannedFile | str] = {}
        for entry in entries:
            place = places.get(entry.path)
            if place is None:
                place = places[entry.path] = self._place(entry.path)
            if isinstance(place, str):
                self.skipped[place] += 1
                if place != FILE_REMOVED:
                    self._skipped_paths[entry.path] = None
            else:
                place.entries.append(entry)
        # A report about a file that was removed meanwhile is late, but about this project.
        self.imported = sum(len(file.entries) for file in self.files.values()) + self.skipped[FILE_REMOVED]

    @property
    def is_unusable(self) -> bool:
        """Whether all results were skipped."""
        return bool(self.skipped) and not self.imported

    def _place(self, path: str) -> ScannedFile | str:
        """The file at a path of the report, or the reason to skip it."""
        try:
            canonical = self.paths.canonical(path)
        except InvalidPath:
            return OUTSIDE_PROJECT
        except RegistryError:
            return NOT_A_FILE
        if canonical not in self.files:
            stored = files.at(self._writer, canonical)
            if stored is not None and stored.removed_at is not None and not self._project.exists(canonical):
                return FILE_REMOVED
            self.files[canonical] = ScannedFile(canonical, is_new=stored is None)
        return self.files[canonical]

    def renamed(self) -> dict[str, str]:
        """The earlier path of each file that was renamed."""
        appeared = [file.path for file in self.files.values() if file.is_new]
        if not appeared:
            return {}
        return renamed_files(self._writer, self._project, self.files, appeared, self._sketch_of)

    def recognised(self, file: ScannedFile) -> list[Candidate]:
        """The distinct findings of a registered file, each with the earlier finding that it is."""
        contents = self._contents_of(file.path)
        last_line = max((entry.line_start or 0 for entry in file.entries), default=0)
        if contents is not None and last_line > contents.line_count:
            # The file is not the one that was scanned.
            contents = None
        if contents is not None:
            files.set_sketch(self._writer, file.no, contents.sketch())
        # What is recognised tells its reporter that the content is the same.
        hidden = self._project.hides(file.path)
        distinct: dict[object, Candidate] = {}
        for entry in file.entries:
            reported = normalised(entry)
            metadata = metadata_json(reported.metadata)
            candidate = Candidate(reported, b"" if hidden else _place_of(reported, contents), metadata)
            key = (description_of(reported), reported.fingerprint, metadata)
            if distinct.setdefault(key, candidate) is not candidate:
                self.duplicates += 1
        candidates = [*distinct.values()]
        if file.is_new:
            return candidates
        category = self._report.category
        known = findings.known(self._writer, file.no, self._report.source, category)
        own = [each for each in known if each.category == category]
        match(own, candidates)
        if category:
            # The scanner, or an earlier version of this program, may not have known categories.
            match([each for each in known if not each.category], [each for each in candidates if each.known is None])
        seen = {each.known.no for each in candidates if each.known}
        file.unseen = [each for each in own if each.no not in seen]
        return candidates

    def may_have_skipped(self, finding: OpenFinding) -> bool:
        """Whether a skipped result may be this finding."""
        return finding.rule_id in self._rules_skipped or finding.file_no in self._files_skipped

    @cached_property
    def _files_skipped(self) -> set[int]:
        """The files that skipped results may be about, because their path is the end of a skipped one."""
        names = {name for path in self._skipped_paths for name in names_it_may_have(path)}
        stored = [files.at(self._writer, name) for name in names if not has_unprintable(name)]
        return {each.no for each in stored if each is not None}

    def _contents_of(self, path: str) -> Contents | None:
        text = self._project.read(path, MAX_FILE_BYTES)
        return None if text is None else Contents(text)

    def _sketch_of(self, path: str) -> bytes:
        contents = self._contents_of(path)
        return b"" if contents is None else contents.sketch()


def counts_of(project: ProjectPaths, baseline: Iterable[ScanReport]) -> Counter[BaselineKey]:
    """How many findings of each source, file, rule and message a baseline has."""
    counts: Counter[BaselineKey] = Counter()
    for report in baseline:
        entries = [normalised(each) for each in report.findings]
        paths = ReportPaths(project, dict.fromkeys(each.path for each in entries), report.prefixes, report.roots)
        for each in entries:
            with suppress(RegistryError):
                counts[report.source, paths.canonical(each.path), *kind_of(each)] += 1
    return counts


def _place_of(reported: ReportEntry, contents: Contents | None) -> bytes:
    """The content around a finding: in the file, or in the snippet of the report, if that is from another version."""
    if contents is None or reported.line_start is None:
        return reported.place
    column = reported.metadata.get("column")
    place = contents.place(reported.line_start, column if isinstance(column, int) and column > 0 else None)
    if place and reported.place and similarity(place, reported.place) < _MIN_SIMILARITY_OF_SNIPPET:
        return reported.place
    return place or reported.place
