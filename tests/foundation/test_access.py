"""Rules about groups: whom they admit, how settings name them, and mistakes in them."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any, ClassVar

import pytest

from armarium.foundation.errors import ConfigError, NotInGroup, NotPermitted
from armarium.foundation.security.access import Access, AccessRule, is_member
from armarium.foundation.security.identity import ANYONE, LOCAL, Principal
from armarium.foundation.settings.loader import checked
from armarium.foundation.settings.model import RestrictedSection
from armarium.foundation.tools import ToolSpec, remote_tool

STAFF = frozenset({"staff"})


class Cellar(RestrictedSection):
    """A section with roles of its own."""

    roles: ClassVar[tuple[str, ...]] = ("read", "bottle")


def caller(*groups: str, **traits: Any) -> Principal:
    return Principal("someone", groups, "0" * 64, **traits)


def tool(**traits: Any) -> ToolSpec:
    async def run(call: object, arguments: object) -> dict[str, Any]:
        return {}

    return remote_tool("taste", "Taste.", {"type": "object"}, run, **traits)


@pytest.mark.parametrize(
    ("principal", "admitted"),
    [(caller("staff"), True), (caller("Staff"), False), (caller(), False), (LOCAL, True), (ANYONE, False)],
)
def test_named_groups_admit_their_members_and_the_local_owner(principal: Principal, admitted: bool) -> None:
    assert is_member(principal, STAFF) is admitted
    assert is_member(principal, frozenset())


def test_a_role_needs_its_groups_in_addition_to_those_for_every_use() -> None:
    rule = AccessRule(STAFF, {"bottle": frozenset({"cellarers"})})
    assert rule.admits(caller("staff"), "read")
    assert not rule.admits(caller("staff"), "bottle")
    assert not rule.admits(caller("cellarers"), "bottle")
    assert rule.admits(caller("staff", "cellarers"), "read", "bottle")
    assert rule.named_groups() == {"staff", "cellarers"}


@pytest.mark.parametrize(
    ("principal", "refusal"),
    [
        (caller("staff"), None),
        (caller(), NotInGroup),
        (caller("staff", read_only=True), NotPermitted),
        (caller("staff", capabilities=frozenset({"attic"})), NotPermitted),
        (caller("staff", capabilities=frozenset({"cellar"})), None),
    ],
)
def test_a_key_and_its_groups_must_both_permit_a_tool(principal: Principal, refusal: type[Exception] | None) -> None:
    access = Access("cellar", AccessRule(STAFF))
    assert access.permits(principal, tool()) is (refusal is None)
    if refusal is not None:
        with pytest.raises(refusal) as denied:
            access.require(principal, tool())
        assert "staff" not in str(denied.value)


def test_the_role_of_a_tool_follows_from_whether_it_changes_anything() -> None:
    assert (tool(read_only=True).role, tool().role, tool(role="bottle").role) == ("read", "write", "bottle")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"access": {"drink": ["staff"]}}, "unknown role 'drink'; known here: read, bottle"),
        ({"groups": []}, "at least 1"),
        ({"access": {"read": []}}, "at least 1"),
        ({"groups": [""]}, "at least 1"),
        ({"groups": "staff"}, "groups"),
    ],
)
def test_a_mistake_in_a_rule_stops_the_start(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        checked(Cellar, values, source="armarium.yaml")


def test_a_section_that_is_printed_can_be_read_again() -> None:
    for values in ({}, {"groups": ["staff"], "access": {"bottle": ["cellarers"]}}):
        section = checked(Cellar, values, source="armarium.yaml")
        assert checked(Cellar, section.model_dump(mode="json"), source="armarium.yaml") == section
    assert list(section.rules()) == [("", AccessRule(STAFF, {"bottle": frozenset({"cellarers"})}))]


def test_a_rule_is_within_another_only_if_that_admits_its_callers() -> None:
    rng, uses = random.Random(81), ("read", "write", "grep")

    def some_rule() -> AccessRule:
        def some() -> frozenset[str]:
            return frozenset(rng.sample("abc", rng.randint(0, 2)))

        return AccessRule(some(), {use: some() for use in uses if rng.random() < 0.3})

    callers = [caller(*groups) for size in range(4) for groups in combinations("abc", size)]
    within = 0
    for _ in range(5000):
        inner, outer = some_rule(), some_rule()
        if not outer.is_within(inner):
            continue
        within += 1
        for each in callers:
            for used in ("read", "write"):
                for tools in ((used,), (used, "grep")):
                    assert inner.admits(each, *tools) or not outer.admits(each, *tools), (inner, outer, each, tools)
    assert 200 < within < 4800
