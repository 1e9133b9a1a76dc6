"""Random sequences of registrations, scans, decisions, associations, renames and removals, compared with a model."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from armarium.capabilities.registry.changes.issues import IssueChange
from armarium.capabilities.registry.lifespan import open_registry
from armarium.capabilities.registry.model import FileFilter, ReportEntry, ScanReport
from armarium.capabilities.registry.service import Registry
from armarium.capabilities.registry.values import SEVERITIES, AssocType, FindingStatus, Severity
from support.registry_calls import ACTOR, Json, skipped, summary

PATHS = ["a.py", "b.go", "d/a.py", "d/b_c", "d/e/a.py", "d%"]
PLACES = [*PATHS, "d", "d/e", "f"]
SOURCES = ["ruff", "bandit"]
ASSOC_TYPES: list[AssocType] = ["bug_in", "task_for"]

paths = st.sampled_from(PATHS)
sources = st.sampled_from(SOURCES)
severities = st.sampled_from(SEVERITIES)
reported = st.builds(
    lambda path, rule, line, severity, suppressed: ReportEntry(
        path,
        rule,
        f"{rule} {severity}",
        severity,
        line,
        fingerprint="mark" if rule == "marked" else None,
        suppressed=suppressed,
    ),
    paths,
    st.sampled_from(["R1", "R2", "marked"]),
    st.sampled_from([None, 1, 2]),
    severities,
    st.sampled_from([False, False, True]),
)
reports = st.lists(reported, max_size=8, unique_by=lambda each: (each.path, each.fingerprint or id(each)))
covers = st.none() | st.lists(st.sampled_from([*PLACES, "."]), max_size=2).map(tuple)


@dataclass
class ModelFinding:
    severity: Severity
    status: FindingStatus = "open"
    seen: int = 1
    described: tuple[Any, ...] = ()
    suppressed: bool = False
    """Whether a scan says so, and not a person."""
    number: int = field(default_factory=itertools.count().__next__)


@dataclass
class ModelFile:
    path: str
    order: int
    removed: int = 0
    """When, by the model's clock; 0 is never."""
    language: str = ""
    findings: dict[tuple[str, str], ModelFinding] = field(default_factory=dict)
    links: set[tuple[str, str]] = field(default_factory=set)
    events: Counter[str] = field(default_factory=Counter)

    @property
    def summary(self) -> Json:
        still_open = Counter(each.severity for each in self.findings.values() if each.status == "open")
        counts = {severity: still_open[severity] for severity in SEVERITIES}
        return summary(len(self.findings), sum(counts.values()), **counts)


def identity(found: ReportEntry) -> str:
    return found.fingerprint or f"{place_of(found)}:{found.message}"


def place_of(found: ReportEntry) -> str:
    return f"{found.rule_id}:{found.line_start}"


def guess(path: str) -> str:
    return {"py": "python", "go": "go"}.get(path.rpartition(".")[2], "")


def is_below(path: str, place: str) -> bool:
    return place == "." or path == place or path.startswith(f"{place}/")


class Model:
    """What should be known, by the simplest means."""

    def __init__(self) -> None:
        self.files: list[ModelFile] = []
        self.clock = 0

    def present(self, place: str) -> list[ModelFile]:
        return [file for file in self.files if not file.removed and is_below(file.path, place)]

    def register(self, path: str, language: str | None = None) -> ModelFile:
        here = [file for file in self.files if file.path == path]
        if not here:
            self.files.append(ModelFile(path, len(self.files), language=language or guess(path)))
            return self.files[-1]
        file = min(here, key=lambda each: (bool(each.removed), -each.removed, -each.order))
        if file.removed:
            file.removed = 0
            file.events["file_metadata_update"] += 1
        if language and language != file.language:
            file.language = language
            file.events["file_metadata_update"] += 1
        return file

    def remove(self, file: ModelFile) -> None:
        self.clock += 1
        file.removed = self.clock
        file.events["file_metadata_update"] += 1
        for finding in file.findings.values():
            self.fix(file, finding)

    def fix(self, file: ModelFile, finding: ModelFinding) -> int:
        if finding.status != "open":
            return 0
        finding.status = "fixed"
        file.events["finding_closed"] += 1
        return 1

    def move(self, old: str, new: str) -> int:
        moving = self.present(old) if old != new else []
        for file in sorted(moving, key=lambda each: each.path):
            target = new + file.path[len(old) :]
            for other in self.files:
                if other.path == target and not other.removed:
                    self.remove(other)
            language = guess(target) if file.language == guess(file.path) else file.language
            file.events["file_metadata_update"] += 1 + (language != file.language)
            file.path, file.language = target, language
        return len(moving)

    def scan(self, source: str, findings: list[ReportEntry], covered: tuple[str, ...] | None) -> Counter[str]:
        counts: Counter[str] = Counter()
        seen: set[int] = set()
        named: dict[str, dict[str, ReportEntry]] = {}
        for each in findings:
            here = [file for file in self.files if file.path == each.path]
            if here and all(file.removed for file in here):
                counts["skipped"] += 1
                continue
            distinct = named.setdefault(each.path, {})
            counts["duplicate"] += identity(each) in distinct
            distinct.setdefault(identity(each), each)
        files = {path: self.register(path) for path in named}
        for path, distinct in named.items():
            file = files[path]
            for key, each, known in self.recognised(file, source, distinct):
                described = (each.rule_id, each.severity, each.message, each.line_start)
                status: FindingStatus = "false_positive" if each.suppressed else "open"
                if known is None:
                    made = ModelFinding(each.severity, status, 1, described, each.suppressed)
                    file.findings[source, key] = made
                    seen.add(id(made))
                    file.events["finding_created"] += 1
                    counts["created"] += 1
                    continue
                file.findings[source, key] = known
                seen.add(id(known))
                known.seen += 1
                if known.status == "false_positive" and not known.suppressed:
                    status = "false_positive"
                else:
                    known.suppressed = each.suppressed
                reopened = known.status != "open" and status == "open"
                changed = known.status != status or known.described != described
                known.severity, known.described, known.status = each.severity, described, status
                file.events["finding_updated"] += changed
                counts["reopened" if reopened else "updated" if changed else "unchanged"] += 1
        scanned = [f for f in self.files if any(is_below(f.path, c) for c in covered or ())]
        for file in files.values() if covered is None else scanned:
            for (found_by, _), finding in file.findings.items():
                if found_by == source and id(finding) not in seen:
                    counts["closed"] += self.fix(file, finding)
        return counts

    def recognised(
        self, file: ModelFile, source: str, distinct: dict[str, ReportEntry]
    ) -> list[tuple[str, ReportEntry, ModelFinding | None]]:
        """The reported findings with those that they are: by everything, else by rule and line."""
        found: dict[str, ModelFinding | None] = {key: file.findings.pop((source, key), None) for key in distinct}
        for place in {place_of(each) for each in distinct.values() if each.line_start and not each.fingerprint}:
            new = [key for key, each in distinct.items() if place_of(each) == place and found[key] is None]
            known = [key for by, key in file.findings if by == source and key.startswith(f"{place}:")]
            known.sort(key=lambda key: file.findings[source, key].number)
            if len(new) == len(known):
                new, known = sorted(new), sorted(known)
            else:
                known.sort(key=lambda key: file.findings[source, key].status == "fixed")
            for old_key, new_key in zip(known, new, strict=False):
                found[new_key] = file.findings.pop((source, old_key))
        return [(key, each, found[key]) for key, each in distinct.items()]


def registry_machine(runner: asyncio.Runner) -> type[RuleBasedStateMachine]:
    """A machine that does everything twice: in the registry, and in the model."""

    class Machine(RuleBasedStateMachine):
        @initialize()
        def begin(self) -> None:
            self.stack = AsyncExitStack()
            directory = self.stack.enter_context(tempfile.TemporaryDirectory())
            self.registry: Registry = runner.run(self.stack.enter_async_context(open_registry(Path(directory), "p")))
            self.model = Model()
            self.ids: dict[int, str] = {}
            self.issues = [runner.run(self.registry.create_issue(IssueChange(title="one"), ACTOR))["id"]]

        def teardown(self) -> None:
            if hasattr(self, "stack"):
                runner.run(self.stack.aclose())

        @rule(path=paths, language=st.sampled_from([None, None, "cobol"]))
        def register(self, path: str, language: str | None) -> None:
            record = runner.run(self.registry.register_file(path, ACTOR, language=language))
            file = self.model.register(path, language)
            assert (record["path"], record["language"]) == (path, file.language)
            assert runner.run(self.registry.get_file(record["id"]))["summary"] == file.summary
            assert self.ids.setdefault(file.order, record["id"]) == record["id"]

        @rule(source=sources, findings=reports, covered=covers)
        def scan(self, source: str, findings: list[ReportEntry], covered: tuple[str, ...] | None) -> None:
            outcome = runner.run(self.registry.scan(ScanReport(source, findings, covered), ACTOR))
            wanted = self.model.scan(source, findings, covered)
            assert {
                "created": outcome["findings_created"],
                "updated": outcome["findings_updated"],
                "closed": outcome["findings_closed"],
                "reopened": outcome["findings_reopened"],
                "unchanged": outcome["findings_unchanged"],
                "duplicate": outcome["findings_duplicate"],
                "skipped": skipped(outcome).get("file_removed", 0),
            } == {
                name: wanted[name]
                for name in ("created", "updated", "closed", "reopened", "unchanged", "duplicate", "skipped")
            }

        @rule(place=st.sampled_from(PLACES))
        def remove(self, place: str) -> None:
            gone = self.model.present(place)
            assert runner.run(self.registry.record_removed(place, ACTOR)) == len(gone)
            self.model.clock += 1
            at = self.model.clock
            for file in gone:
                self.model.remove(file)
                file.removed = at

        @rule(old=st.sampled_from(PLACES), new=st.sampled_from(PLACES))
        def move(self, old: str, new: str) -> None:
            if is_below(new, old) or is_below(old, new):
                return
            assert runner.run(self.registry.record_moved(old, new, ACTOR)) == self.model.move(old, new)

        @precondition(lambda self: any(file.findings for file in self.model.files))
        @rule(data=st.data(), status=st.sampled_from(["open", "fixed", "false_positive"]))
        def judge(self, data: st.DataObject, status: FindingStatus) -> None:
            files = [file for file in self.model.files if file.findings]
            file = data.draw(st.sampled_from(files))
            source, key = data.draw(st.sampled_from(sorted(file.findings)))
            model = file.findings[source, key]
            page = runner.run(self.registry.list_findings(file_id=self.id_of(file), scan_source=source))
            [finding] = [each for each in page["results"] if model_key(each) == key]
            assert finding["status"] == model.status
            assert finding["seen_count"] == model.seen
            runner.run(self.registry.update_finding(finding["id"], status, ACTOR))
            if model.status != status or model.suppressed:
                model.status, model.suppressed = status, False
                file.events["finding_closed" if status == "fixed" else "finding_updated"] += 1

        @precondition(lambda self: self.model.files)
        @rule(data=st.data(), assoc_type=st.sampled_from(ASSOC_TYPES))
        def associate(self, data: st.DataObject, assoc_type: AssocType) -> None:
            file = data.draw(st.sampled_from(self.model.files))
            runner.run(self.registry.associate(self.id_of(file), self.issues[0], assoc_type, ACTOR))
            if (self.issues[0], assoc_type) not in file.links:
                file.links.add((self.issues[0], assoc_type))
                file.events["association_created"] += 1

        @rule(
            language=st.sampled_from([None, "python", ""]),
            prefix=st.sampled_from([None, "", "d", "d/", "d%", "d_"]),
            least=st.sampled_from([None, 0, 1, 2]),
            severity=st.none() | severities,
            source=st.none() | sources,
            sort=st.sampled_from(["path", "language", "updated_at", "first_seen"]),
            direction=st.sampled_from([None, "asc", "desc"]),
        )
        def list_filtered(self, sort: Any, direction: Any, severity: Any, **asked: Any) -> None:
            language, prefix, least, source = (asked[name] for name in ("language", "prefix", "least", "source"))
            wanted = FileFilter(language, prefix, least, severity, source)
            expected = Counter(
                file.path
                for file in self.model.present(".")
                if (language is None or file.language == language)
                and file.path.startswith(prefix or "")
                and file.summary["open_findings"] >= (least or 0)
                and (severity is None or file.summary[severity])
                and (source is None or any(found_by == source for found_by, _ in file.findings))
            )
            ask = {"sort": sort, "direction": direction}
            whole = runner.run(self.registry.list_files(wanted, **ask))
            assert Counter(file["path"] for file in whole["results"]) == expected
            assert whole["total"] == expected.total()
            paged = [
                runner.run(self.registry.list_files(wanted, **ask, limit=2, offset=offset))
                for offset in range(0, whole["total"] + 1, 2)
            ]
            assert [file for page in paged for file in page["results"]] == whole["results"]
            assert [page["has_more"] for page in paged] == [
                page["offset"] + len(page["results"]) < whole["total"] for page in paged
            ]
            values: list[Any] = [file[sort] for file in whole["results"]]
            descending = (direction or ("asc" if sort in ("path", "language") else "desc")) == "desc"
            assert values == sorted(values, reverse=descending)

        @invariant()
        def everything_is_known_as_the_model_has_it(self) -> None:
            if not hasattr(self, "model"):
                return
            page = runner.run(self.registry.list_files(FileFilter(), limit=1000))
            assert page["total"] == len(page["results"]) == len(self.model.present("."))
            listed = {file["id"]: file for file in page["results"]}
            for file in self.model.files:
                file_id = self.id_of(file)
                assert (file_id in listed) != bool(file.removed)
                detail = runner.run(self.registry.get_file(file_id))
                record = detail["file"]
                assert record["language"] == file.language
                assert record["path"] == file.path
                assert detail["summary"] == file.summary
                assert len(detail["associations"]) == len(file.links)
                if file_id in listed:
                    counted = {"summary": file.summary, "associations_count": len(file.links)}
                    assert listed[file_id] == {**record, **counted}
                timeline = runner.run(self.registry.timeline(record["id"], limit=10000))
                events = timeline["results"]
                removals = [each["data"]["new_value"] for each in events if each["data"].get("field") == "removed"]
                assert (removals[:1] == [True]) == bool(file.removed)
                assert Counter(event["type"] for event in events) == +file.events
                assert timeline["total"] == file.events.total()
                times = [event["timestamp"] for event in events]
                assert times == sorted(times, reverse=True)

        def id_of(self, file: ModelFile) -> str:
            """Files that scans made known get their ids the first time they are asked for: by path, then for good."""
            if file.order not in self.ids:
                page = runner.run(self.registry.list_files(FileFilter(), limit=1000))
                others = set(self.ids.values())
                [self.ids[file.order]] = [
                    each["id"] for each in page["results"] if each["path"] == file.path and each["id"] not in others
                ]
            return self.ids[file.order]

    return Machine


def model_key(finding: Any) -> str:
    return finding["fingerprint"] or f"{finding['rule_id']}:{finding['line_start']}:{finding['message']}"


@pytest.mark.hypothesis  # for `make soak`: it runs what is marked so with random examples
@pytest.mark.timeout(600)
def test_any_sequence_of_changes_leaves_counts_totals_and_timelines_as_a_plain_model_has_them() -> None:
    with asyncio.Runner() as runner:
        run_state_machine_as_test(
            registry_machine(runner),
            settings=settings(
                max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )
