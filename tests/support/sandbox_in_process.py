"""A sandbox in this process, whose roots may be on different file systems."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.sandbox.manifest import open_capability
from armarium.capabilities.sandbox.settings import SandboxSettings
from armarium.capability import Facilities
from armarium.foundation.events import Events
from armarium.foundation.files.credential_files import CREDENTIAL_FILES
from armarium.foundation.files.errors import FileError
from armarium.foundation.files.path_rules import Setting, patterns_of
from armarium.foundation.security.identity import LOCAL
from armarium.foundation.tools import Call

_OTHER = Path("/dev/shm")


class Tools:
    """The sandbox's tools, called directly."""

    def __init__(self, tools: Mapping[str, Any]) -> None:
        self._tools = tools

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        answer: dict[str, Any] = await self._tools[tool].run(Call(LOCAL), arguments)
        return answer

    async def fails(self, tool: str, /, **arguments: Any) -> FileError:
        with pytest.raises(FileError) as caught:
            await self.call(tool, **arguments)
        return caught.value

    async def move(self, source: str, dest: str, **more: Any) -> dict[str, Any]:
        return await self.call("move", **between(source, dest), **more)

    async def copy(self, source: str, dest: str, **more: Any) -> dict[str, Any]:
        return await self.call("copy", **between(source, dest), **more)


def between(source: str, dest: str) -> dict[str, str]:
    """Arguments of a copy or move; "one:a/b" is the path a/b in the root `one`."""
    from_root, _, from_path = source.partition(":")
    into_root, _, into_path = dest.partition(":")
    return {"source_root": from_root, "source_path": from_path, "dest_root": into_root, "dest_path": into_path}


@asynccontextmanager
async def sandbox(
    roots: Mapping[str, Path], state: Path, /, *, credentials: Setting = False, **settings: Any
) -> AsyncGenerator[Tools]:
    """A sandbox with these roots, which allow all tools."""
    listed = [{"name": name, "path": str(path), "allowed_tools": ["*"]} for name, path in roots.items()]
    made = SandboxSettings.model_validate({"roots": listed, **settings})
    async with open_capability(
        made, Facilities(Events(), state, credential_patterns=patterns_of(credentials, CREDENTIAL_FILES))
    ) as capability:
        yield Tools({tool.name: tool for tool in capability.tools})


@contextmanager
def other_file_system(near: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """An empty directory on another file system than `near`, which is simulated if there is none."""
    if _OTHER.is_dir() and os.access(_OTHER, os.W_OK) and _OTHER.stat().st_dev != near.stat().st_dev:
        directory = Path(tempfile.mkdtemp(prefix="armarium-test-", dir=_OTHER))
        try:
            yield directory
        finally:
            shutil.rmtree(directory)
        return
    directory = near / "other-file-system"
    directory.mkdir()
    apart(directory, monkeypatch)
    yield directory


def apart(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every rename into or out of the directory fail with EXDEV."""
    rename = os.rename

    def refusing(source: str, target: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        fds = [fd for fd in (src_dir_fd, dst_dir_fd) if fd is not None]
        if len({os.readlink(f"/proc/self/fd/{fd}").startswith(str(directory)) for fd in fds}) == 2:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", refusing)
