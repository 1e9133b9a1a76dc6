"""Judgements on many findings: what they change, what the timeline tells, and how they are undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from armarium.capabilities.registry.changes import judgements as judging
from armarium.capabilities.registry.changes.judgements import FilteredFindings
from armarium.capabilities.registry.errors import Conflict, NotFound, ValidationError
from armarium.capabilities.registry.model import Finding, FindingFilter
from armarium.capabilities.registry.service import Registry
from armarium.capabilities.registry.storage import judgements as stored
from support.registry_calls import ACTOR, file_at, found, scanned, summary

LATER = "someone"


async def listed(registry: Registry, **wanted: Any) -> list[Finding]:
    return (await registry.search_findings(FindingFilter(**wanted), sort="path", limit=1000))["results"]


def statuses(findings: Sequence[Finding]) -> list[str]:
    return [each["status"] for each in findings]


async def test_findings_are_judged_together_with_a_reason_and_stay_judged(registry: Registry) -> None:
    await scanned(registry, *(found("a.py", line=line) for line in (1, 2, 3)))
    first, second, third = await listed(registry)
    judged = await registry.judge_findings([first["id"], second["id"]], "false_positive", "only in tests", ACTOR)
    assert (judged["changed"], judged["unchanged"]) == (2, 0)
    assert statuses(await listed(registry)) == ["false_positive", "false_positive", "open"]
    [event] = [each for each in (await registry.get_finding(first["id"]))["timeline"] if "changes" in each["data"]]
    assert event["data"]["reason"] == "only in tests"
    assert event["data"]["actor"] == ACTOR
    assert event["data"]["changes"]["status"] == {"old_value": "open", "new_value": "false_positive"}
    assert (await file_at(registry, "a.py"))["summary"] == summary(3, 1, info=1)
    await scanned(registry, *(found("a.py", line=line) for line in (1, 2, 3)))
    assert statuses(await listed(registry)) == ["false_positive", "false_positive", "open"]
    again = await registry.judge_findings([first["id"], third["id"]], "false_positive", "", ACTOR)
    assert (again["changed"], again["unchanged"]) == (1, 1)


async def test_a_judgement_that_changes_nothing_leaves_no_trace(registry: Registry) -> None:
    await scanned(registry, found("a.py"))
    [finding] = await listed(registry)
    before = await registry.get_finding(finding["id"])
    judged = await registry.judge_findings([finding["id"]], "open", "as it is", ACTOR)
    assert judged == {"judgement_id": None, "changed": 0, "unchanged": 1}
    assert await registry.get_finding(finding["id"]) == before


async def test_all_that_match_are_judged_in_batches_and_nothing_else(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "_BATCH", 3)
    await scanned(registry, *(found(f"src/f{number}.py", "S1", severity="high") for number in range(7)), found("b.py"))
    wanted = FindingFilter(rule_id=("S1",), path_prefix="src/")
    progress: list[int] = []
    judged = await registry.judge_findings(FilteredFindings(wanted, 7), "fixed", "", ACTOR, progress.append)
    assert (judged["changed"], progress) == (7, [3, 6, 7])
    assert statuses(await listed(registry, rule_id=("S1",))) == ["fixed"] * 7
    assert statuses(await listed(registry, rule_id=("R1",))) == ["open"]


async def test_a_filter_that_matches_other_findings_by_now_changes_nothing(registry: Registry) -> None:
    await scanned(registry, found("a.py", line=1))
    await scanned(registry, found("a.py", line=1), found("a.py", line=2, severity="critical"))
    with pytest.raises(Conflict, match="2 findings match now, not 1"):
        await registry.judge_findings(FilteredFindings(FindingFilter(), 1), "false_positive", "", ACTOR)
    assert statuses(await listed(registry)) == ["open", "open"]


async def test_an_unknown_finding_leaves_the_known_ones_unchanged(registry: Registry) -> None:
    await scanned(registry, found("a.py"))
    [finding] = await listed(registry)
    with pytest.raises(NotFound):
        await registry.judge_findings([finding["id"], "nobody-sf-1"], "fixed", "", ACTOR)
    assert statuses(await listed(registry)) == ["open"]


async def test_more_findings_than_one_transaction_takes_are_refused(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_MAX_JUDGED", 2)
    await scanned(registry, *(found("a.py", line=line) for line in (1, 2, 3)))
    with pytest.raises(ValidationError):
        await registry.judge_findings(FilteredFindings(FindingFilter(), 3), "fixed", "", ACTOR)
    assert statuses(await listed(registry)) == ["open"] * 3


async def test_undoing_restores_what_each_finding_was_and_tells_it(registry: Registry) -> None:
    await scanned(registry, found("a.py", line=1), found("a.py", line=2), found("a.py", line=3, suppressed=True))
    one, two, _ = await listed(registry)
    await registry.update_finding(two["id"], "fixed", ACTOR)
    judged = await registry.judge_findings(FilteredFindings(FindingFilter(), 3), "false_positive", "a test", ACTOR)
    assert judged["changed"] == 3
    assert judged["judgement_id"]
    undone = await registry.undo_judgement(judged["judgement_id"], LATER)
    assert undone == {"restored": 3, "skipped": 0}
    assert statuses(await listed(registry)) == ["open", "fixed", "false_positive"]
    event = (await registry.get_finding(one["id"]))["timeline"][0]
    assert event["data"]["undoes"] == judged["judgement_id"]
    assert (event["data"]["actor"], event["data"]["reason"]) == (LATER, "a test")
    assert event["data"]["changes"]["status"] == {"old_value": "false_positive", "new_value": "open"}
    # The suppression by the scan is back, too: the next scan may end it.
    await scanned(registry, found("a.py", line=1), found("a.py", line=3))
    assert statuses(await listed(registry)) == ["open", "fixed", "open"]
    with pytest.raises(Conflict):
        await registry.undo_judgement(judged["judgement_id"], LATER)


async def test_undoing_leaves_findings_that_were_judged_again(registry: Registry) -> None:
    await scanned(registry, found("a.py", line=1), found("a.py", line=2))
    one, two = await listed(registry)
    judged = await registry.judge_findings([one["id"], two["id"]], "false_positive", "", ACTOR)
    await registry.update_finding(one["id"], "open", LATER)
    await registry.update_finding(one["id"], "false_positive", LATER)
    assert judged["judgement_id"]
    assert await registry.undo_judgement(judged["judgement_id"], ACTOR) == {"restored": 1, "skipped": 1}
    assert statuses(await listed(registry)) == ["false_positive", "open"]


async def test_an_unknown_judgement_is_not_found(registry: Registry) -> None:
    with pytest.raises(NotFound):
        await registry.undo_judgement("nobody-j-1", ACTOR)
