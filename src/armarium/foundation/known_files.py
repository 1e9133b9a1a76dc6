"""Files that several capabilities can describe, and the interface for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from armarium.foundation.refs import FileRef
from armarium.foundation.tools import Call


@dataclass(frozen=True, slots=True)
class LocatedFile:
    """The file of a reference. It need not exist any more."""

    ref: FileRef
    host_path: str | None = field(default=None, repr=False)
    """Path on this machine, by which other capabilities know the file; None if it is elsewhere. It must not reach
    callers."""

    def path_below(self, directory: str) -> str | None:
        """The path relative to a directory of this machine; None if the file is not below it."""
        prefix = directory.rstrip("/") + "/"
        if self.host_path is None or not self.host_path.startswith(prefix):
            return None
        return self.host_path[len(prefix) :]


class FileKnowledge(Protocol):
    """What a capability knows about files. It answers only what the caller may read."""

    @property
    def scheme(self) -> str | None:
        """Of the references to its files; None if it has none of its own."""
        ...

    async def locate(self, call: Call, ref: FileRef) -> LocatedFile:
        """The file of a reference of this scheme. Raises if the caller may not know about it."""
        ...

    async def describe(self, call: Call, file: LocatedFile) -> dict[str, Any] | None:
        """What it knows about the file; None if nothing."""
        ...
