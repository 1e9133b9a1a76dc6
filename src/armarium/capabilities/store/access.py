"""Decides who may use the store and which of its projects, by groups."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from armarium.capabilities.store.settings import ProjectSettings, StoreSettings
from armarium.foundation.security.access import READ, Access, AccessRule, not_in_group
from armarium.foundation.security.identity import Principal
from armarium.foundation.tools import ToolSpec


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """The groups of the store, and of projects. Every rule that matches the name of a project must admit the caller."""

    whole: Access = field(default_factory=lambda: Access("store"))
    projects: Sequence[tuple[str, AccessRule]] = ()
    """Regular expressions of names, with their rules."""

    @classmethod
    def of(cls, settings: StoreSettings) -> StoreAccess:
        return cls(Access("store", settings.rule), [(_pattern(each), each.rule) for each in settings.projects])

    def require(self, principal: Principal, role: str, project: str | None = None) -> None:
        """Raise unless the caller may use the store, and the project, in this role."""
        self.whole.require_role(principal, role)
        for pattern, rule in self.projects if project is not None else ():
            if not rule.admits(principal, role) and re.fullmatch(pattern, project or ""):
                raise not_in_group()

    def require_resources(self, principal: Principal, tool: ToolSpec, arguments: Mapping[str, Any]) -> None:
        """Raise unless the caller may use the project that the arguments name."""
        self.require(principal, tool.role, arguments.get("project"))

    def hidden_from(self, principal: Principal) -> list[str]:
        """Regular expressions of the projects that the caller may not read, for PostgreSQL."""
        return [f"^{pattern}$" for pattern, rule in self.projects if not rule.admits(principal, READ)]


def _pattern(project: ProjectSettings) -> str:
    """Only what Python and PostgreSQL read in the same way."""
    return project.name.replace(".", "[.]").replace("*", ".*")
