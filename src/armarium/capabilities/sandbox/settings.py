"""The sandbox's section of the settings: which directories agents may work on, and how."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from armarium.capabilities.sandbox.roots import TOOL_NAMES
from armarium.foundation.settings import Section


class RootSettings(Section):
    """One directory that agents see under a name, never under its host path."""

    name: str = Field(min_length=1)
    """Unique name that agents use."""
    path: str = Field(min_length=1)
    """Directory on this machine. It must exist."""
    allowed_tools: tuple[str, ...]
    """Tools that may be used here; `"*"` stands for all."""
    read_only: bool = False
    """Refuse every tool that changes something, whatever `allowed_tools` says."""
    ignore: tuple[str, ...] = ()
    """Patterns, as in .gitignore, of paths that no listing or search shows and no tool touches."""

    @field_validator("allowed_tools")
    @classmethod
    def _known_tools(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name != "*" and name not in TOOL_NAMES:
                raise ValueError(f"unknown tool {name!r}; known tools: {', '.join(TOOL_NAMES)}")
        return names


class SandboxSettings(Section):
    """Work on real directories, confined to named roots."""

    roots: tuple[RootSettings, ...]
    """The directories."""
    max_full_read_size: int = Field(default=1_048_576, gt=0)
    """Largest file, in bytes, that is read without an offset or limit."""
    max_partial_read_size: int = Field(default=8 * 1024 * 1024, gt=0)
    """Most bytes that one read with an offset or limit returns."""
    max_search_seconds: int = Field(default=3600, gt=0)
    """Longest time a grep or glob may take, whatever `timeout_seconds` asks for."""
    max_lock_seconds: float = Field(default=10.0, gt=0, le=600)
    """Longest time a change waits while another process holds the directory; then it is refused as RESOURCE_BUSY."""
    landlock: Literal["auto", "off"] = "auto"
    """Let the kernel confine the worker threads as well, where it can."""

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
