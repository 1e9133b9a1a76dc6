"""Judges many findings at once, and undoes a judgement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from armarium.capabilities.registry.changes.file_records import Ids
from armarium.capabilities.registry.errors import KNOWN_FINDINGS, Conflict, NotFound
from armarium.capabilities.registry.model import FindingFilter, Judged, Undone
from armarium.capabilities.registry.storage import files, findings, judgements, timeline
from armarium.capabilities.registry.storage.columns import to_json
from armarium.capabilities.registry.storage.database import Writer
from armarium.capabilities.registry.storage.finding_search import conditions
from armarium.capabilities.registry.storage.judgements import JudgedFinding, Judgement
from armarium.capabilities.registry.storage.timeline import EventType, NewEvent
from armarium.capabilities.registry.values import FindingStatus

_BATCH = 1000

OnProgress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class FilteredFindings:
    """All findings that a filter selects. They must be as many as the caller saw."""

    wanted: FindingFilter
    expected: int


def judge(
    writer: Writer,
    ids: Ids,
    chosen: Sequence[str] | FilteredFindings,
    status: FindingStatus,
    reason: str,
    actor: str,
    on_progress: OnProgress,
) -> Judged:
    """Set the status of findings, in the transaction of the writer."""
    found = _matching(writer, chosen) if isinstance(chosen, FilteredFindings) else _with_ids(writer, chosen)
    changing = [each for each in found if each.status != status or each.suppressed]
    unchanged = len(found) - len(changing)
    if not changing:
        return {"judgement_id": None, "changed": 0, "unchanged": unchanged}
    judgement_id = ids.judgement()
    first_event = timeline.last(writer)[0] + 1
    why = {"reason": reason} if reason else {}
    for start in range(0, len(changing), _BATCH):
        batch = changing[start : start + _BATCH]
        findings.set_status(writer, [each.no for each in batch], status)
        about = {"actor": actor, "judgement_id": judgement_id, **why}
        timeline.append(writer, [_event(each, status, _changes(each, status), about) for each in batch])
        on_progress(start + len(batch))
    files.touch(writer, sorted({each.file_no for each in changing}))
    last_event = timeline.last(writer)[0]
    judgements.insert(
        writer, Judgement(judgement_id, writer.now, actor, status, reason, first_event, last_event, undone_at=None)
    )
    return {"judgement_id": judgement_id, "changed": len(changing), "unchanged": unchanged}


def undo(writer: Writer, judgement_id: str, actor: str, on_progress: OnProgress) -> Undone:
    """Give the findings of a judgement the status that they had, unless they have changed since."""
    judgement = judgements.by_id(writer, judgement_id)
    if judgement.undone_at is not None:
        raise Conflict("the judgement is undone already")
    changed = judgements.changed_by(writer, judgement)
    unchanged = [each for each in changed if each.status == judgement.status and each.updated_at == judgement.at]
    why = {"reason": judgement.reason} if judgement.reason else {}
    for start in range(0, len(unchanged), _BATCH):
        batch = unchanged[start : start + _BATCH]
        judgements.restore(writer, [(*_before(each), each.no) for each in batch])
        about = {"actor": actor, "undoes": judgement_id, **why}
        events = [_event(each, _before(each)[0], _reversed(each.event["changes"]), about) for each in batch]
        timeline.append(writer, events)
        on_progress(start + len(batch))
    files.touch(writer, sorted({each.file_no for each in unchanged}))
    writer.many("mark_judgement_undone", [(writer.now, judgement_id)])
    return {"restored": len(unchanged), "skipped": len(changed) - len(unchanged)}


def _with_ids(writer: Writer, finding_ids: Sequence[str]) -> list[JudgedFinding]:
    wanted = dict.fromkeys(finding_ids)
    given = {"ids": to_json([*wanted])}
    found = judgements.selected(writer, "n.id IN (SELECT value FROM json_each(:ids))", given)
    if len(found) < len(wanted):
        raise NotFound("no finding has one of these ids; nothing was changed", hint=KNOWN_FINDINGS)
    return found


def _matching(writer: Writer, chosen: FilteredFindings) -> list[JudgedFinding]:
    found = judgements.selected(writer, *conditions(writer, chosen.wanted))
    if len(found) != chosen.expected:
        message = f"{len(found)} findings match now, not {chosen.expected}; nothing was changed"
        raise Conflict(message, hint="look at the list again")
    return found


def _changes(finding: JudgedFinding, status: FindingStatus) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if finding.status != status:
        changes["status"] = {"old_value": finding.status, "new_value": status}
    if finding.suppressed:
        changes["suppressed"] = {"old_value": True, "new_value": False}
    return changes


def _before(finding: JudgedFinding) -> tuple[FindingStatus, bool]:
    """The former status, and whether a scan set it."""
    changes = finding.event["changes"]
    status: FindingStatus = changes["status"]["old_value"] if "status" in changes else finding.status
    return status, "suppressed" in changes


def _reversed(changes: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {"old_value": change["new_value"], "new_value": change["old_value"]} for name, change in changes.items()
    }


def _event(finding: JudgedFinding, status: FindingStatus, changes: dict[str, Any], about: dict[str, Any]) -> NewEvent:
    kind: EventType = "finding_closed" if status == "fixed" else "finding_updated"
    described = {"scan_source": finding.source, "rule_id": finding.rule_id, "severity": finding.severity}
    return NewEvent(finding.file_no, kind, finding.id, described | {"status": status, "changes": changes, **about})
