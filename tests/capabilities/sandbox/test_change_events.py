"""A move publishes one move event before the change events of its source and destination."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.sandbox.manifest import open_capability
from armarium.capabilities.sandbox.settings import SandboxSettings
from armarium.capability import Facilities
from armarium.foundation.events import Events, FileChanged, FileMoved
from armarium.foundation.files.errors import FileError
from armarium.foundation.security.identity import LOCAL
from armarium.foundation.tools import Call


class Listener:
    """The events of a sandbox with two roots, and its tools."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.heard: list[FileMoved | FileChanged] = []

    @asynccontextmanager
    async def sandbox(self) -> AsyncGenerator[Any]:
        events = Events()
        events.subscribe(FileMoved, self._hear)
        events.subscribe(FileChanged, self._hear)
        roots = [{"name": name, "path": str(self.base / name), "allowed_tools": ["*"]} for name in ("one", "two")]
        settings = SandboxSettings.model_validate({"roots": roots, "landlock": "off"})
        async with open_capability(settings, Facilities(events, self.base / "state")) as capability:
            tools = {tool.name: tool for tool in capability.tools}

            async def call(tool: str, **arguments: Any) -> Any:
                return await tools[tool].run(Call(LOCAL), arguments)

            yield call

    async def _hear(self, event: FileMoved | FileChanged) -> None:
        self.heard.append(event)

    def told(self) -> list[tuple[str, ...]]:
        return [
            ("moved", event.previous_host_path, event.host_path)
            if isinstance(event, FileMoved)
            else (event.change, str(event.host_path))
            for event in self.heard
        ]


@pytest.fixture
def listener(tmp_path: Path) -> Listener:
    for name in ("one", "two"):
        (tmp_path / name / "src").mkdir(parents=True)
    (tmp_path / "one" / "src" / "a.py").write_text("A = 1\n")
    return Listener(tmp_path)


async def test_a_moved_file_is_told_with_both_places_before_the_changes(listener: Listener) -> None:
    async with listener.sandbox() as call:
        await call("move", source_root="one", source_path="src/a.py", dest_root="one", dest_path="b.py")
    before, after = str(listener.base / "one/src/a.py"), str(listener.base / "one/b.py")
    assert listener.told() == [("moved", before, after), ("removed", before), ("created", after)]
    moved = listener.heard[0]
    assert isinstance(moved, FileMoved)
    assert (str(moved.previous), str(moved.ref)) == ("root://one/src/a.py", "root://one/b.py")
    assert (moved.is_directory, moved.by) == (False, LOCAL)


async def test_a_folder_moved_to_another_root_is_one_move(listener: Listener) -> None:
    async with listener.sandbox() as call:
        await call("move", source_root="one", source_path="src", dest_root="two", dest_path="lib")
    moved = listener.heard[0]
    assert isinstance(moved, FileMoved)
    assert moved.is_directory
    assert (str(moved.previous), str(moved.ref)) == ("root://one/src", "root://two/lib")
    assert [type(event) for event in listener.heard] == [FileMoved, FileChanged, FileChanged]


async def test_a_move_that_fails_is_not_told(listener: Listener) -> None:
    async with listener.sandbox() as call:
        with pytest.raises(FileError):
            await call("move", source_root="one", source_path="none.py", dest_root="one", dest_path="b.py")
    assert listener.heard == []
