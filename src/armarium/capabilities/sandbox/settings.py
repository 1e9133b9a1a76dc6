"""The sandbox's section of the settings."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import permutations
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from armarium.capabilities.sandbox.roots import TOOL_NAMES
from armarium.foundation.errors import ConfigError
from armarium.foundation.security.access import READ, WRITE, AccessRule
from armarium.foundation.settings.model import RestrictedSection


class RootSettings(RestrictedSection):
    """A directory that agents can use. They know its name, never its host path. To callers who may not use a root, it
    does not exist."""

    roles: ClassVar[tuple[str, ...]] = (READ, WRITE, *TOOL_NAMES)

    name: str = Field(min_length=1)
    """Name of the root, unique in the list. Agents pass it as `root`."""
    path: str = Field(min_length=1)
    """Path of an existing directory on this machine."""
    allowed_tools: tuple[str, ...]
    """Tools that agents may use in this root; `"*"` allows all of them."""
    read_only: bool = False
    """Deny every tool that changes something, even if `allowed_tools` lists it."""
    ignore: tuple[str, ...] = ()
    """Patterns in .gitignore syntax. Matching paths are hidden from listings and searches, and no tool can use them."""

    deny_write: bool | tuple[str, ...] = True
    """Whether to deny agents to write what programs execute or what configures them, such as `.git`, `.bashrc`,
    `.github/workflows` and `armarium.yaml`. A list has further patterns in .gitignore syntax; `!` allows a path
    again: `!.gitattributes`."""

    @field_validator("allowed_tools")
    @classmethod
    def _known_tools(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name != "*" and name not in TOOL_NAMES:
                raise ValueError(f"unknown tool {name!r}; known tools: {', '.join(TOOL_NAMES)}")
        return names


class SandboxSettings(RestrictedSection):
    """Gives agents access to directories on this machine, confined to named roots."""

    roots: tuple[RootSettings, ...]
    """The directories that agents can use. At least one is required."""
    max_full_read_size: int = Field(default=1_048_576, gt=0)
    """Maximum size in bytes of a file that is read without an offset or limit."""
    max_partial_read_size: int = Field(default=8 * 1024 * 1024, gt=0)
    """Maximum number of bytes that one read with an offset or limit returns."""
    max_upload_size: int = Field(default=1024 * 1024 * 1024, gt=0)
    """Maximum size in bytes of a file that is uploaded over HTTP."""
    max_search_seconds: int = Field(default=3600, gt=0)
    """Maximum duration of a grep or glob in seconds, even if `timeout_seconds` asks for more."""
    max_lock_seconds: float = Field(default=10.0, gt=0, le=600)
    """How many seconds a change waits for a directory that another process has locked. After that it fails with
    RESOURCE_BUSY."""
    landlock: Literal["auto", "off"] = "auto"
    """`auto`: also confine the worker threads with Landlock where the kernel supports it; `off`: do not."""

    @field_validator("roots")
    @classmethod
    def _at_least_one(cls, roots: tuple[RootSettings, ...]) -> tuple[RootSettings, ...]:
        if not roots:
            raise ValueError("at least one root is needed")
        return roots

    @model_validator(mode="after")
    def _unique_names(self) -> Self:
        names = [root.name for root in self.roots]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"duplicate root name: {name!r}")
        return self

    def require_separate_rules(self) -> None:
        """Raise `ConfigError` if a root lies in another one that admits further callers: through it, they would reach
        what their groups do not permit."""
        places = [(root, os.path.realpath(os.path.expanduser(root.path))) for root in self.roots]
        for (outer, around), (inner, inside) in permutations(places, 2):
            if os.path.commonpath((around, inside)) == around and not outer.rule.is_within(inner.rule):
                raise ConfigError(
                    f"the root {inner.name} lies in the root {outer.name}, which admits callers outside of its groups",
                    hint=f"give {outer.name} the `groups` and `access` of {inner.name}, or move one of the directories",
                )

    def rules(self) -> Iterable[tuple[str, AccessRule]]:
        return [*super().rules(), *((f"root {root.name}", root.rule) for root in self.roots)]
