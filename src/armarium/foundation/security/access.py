"""Decides what a caller may do: by their key, and by the groups that the settings name.

The dispatcher asks it for every call, and lists only what it permits. Each capability asks it again where its data is,
so that a check which is forgotten in one of the two places reveals nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from armarium.foundation.errors import NotInGroup, NotPermitted
from armarium.foundation.security.identity import Principal

if TYPE_CHECKING:
    from armarium.foundation.tools import ToolSpec

READ, WRITE, ADMINISTER = "read", "write", "administer"
"""Roles that several capabilities have."""

_NO_GROUPS: frozenset[str] = frozenset()


def is_member(principal: Principal, groups: Set[str]) -> bool:
    """Whether the caller is in one of the groups. If there are none, everybody is. The local owner always is."""
    return not groups or principal.is_owner or not groups.isdisjoint(principal.groups)


@dataclass(frozen=True, slots=True)
class AccessRule:
    """The groups whose members may use something. Where it names none, every caller may."""

    groups: frozenset[str] = _NO_GROUPS
    """For every use."""
    narrower: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """For a role or a tool, in addition to `groups`."""

    def admits(self, principal: Principal, *uses: str) -> bool:
        """Whether the caller may use it in all these ways, each the name of a role or a tool."""
        narrower = self.narrower
        return is_member(principal, self.groups) and (
            not narrower or all(is_member(principal, narrower.get(use, _NO_GROUPS)) for use in uses)
        )

    def is_within(self, other: AccessRule) -> bool:
        """Whether `other` surely admits everybody whom this rule admits, in each use."""

        def are_within(required: Set[str], use: str | None = None) -> bool:
            named = (self.groups, self.narrower.get(use or "", _NO_GROUPS))
            return not required or any(groups and groups <= required for groups in named)

        return are_within(other.groups) and all(are_within(groups, use) for use, groups in other.narrower.items())

    def named_groups(self) -> frozenset[str]:
        return self.groups.union(*self.narrower.values())


OPEN = AccessRule()
"""The rule that names no groups."""


def _no_resources(principal: Principal, tool: ToolSpec, arguments: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use a capability."""

    capability: str
    rule: AccessRule = OPEN
    require_resources: Callable[[Principal, ToolSpec, Mapping[str, Any]], None] = _no_resources
    """Raises unless the caller may use the resources, such as roots, that the arguments of a call name."""

    def admits(self, principal: Principal, *uses: str) -> bool:
        """Whether the caller may use the capability in these roles, through whatever tool."""
        permitted = principal.capabilities
        return (permitted is None or self.capability in permitted) and self.rule.admits(principal, *uses)

    def permits(self, principal: Principal, tool: ToolSpec) -> bool:
        """Whether the caller may use this tool."""
        # A tool that only runs others does nothing itself. Each tool that it runs is checked.
        free = tool.runs_tools or tool.for_every_caller
        return free or (self.admits(principal, tool.role) and (tool.read_only or not principal.read_only))

    def require(self, principal: Principal, tool: ToolSpec) -> None:
        """Raise `NotPermitted` or `NotInGroup` unless the caller may use this tool."""
        if self.permits(principal, tool):
            return
        if principal.read_only and not tool.read_only:
            raise _not_permitted(principal, "change anything")
        self.require_role(principal, tool.role)

    def require_role(self, principal: Principal, role: str) -> None:
        """Raise unless the caller may use the capability in this role."""
        if principal.capabilities is not None and self.capability not in principal.capabilities:
            raise _not_permitted(principal, f"use the {self.capability}")
        if not self.rule.admits(principal, role):
            raise not_in_group()


def not_in_group() -> NotInGroup:
    """The error for a caller outside of the groups. It does not name them, because their names can be confidential."""
    return NotInGroup(
        "this is for members of certain groups only",
        hint="ask the operator for a key in one of them (`armarium keys add NAME --group GROUP`)",
    )


def _not_permitted(principal: Principal, what: str) -> NotPermitted:
    return NotPermitted(f"the key {principal.username} may not {what}", hint="ask the operator for a key that may")
