"""If the directory of a root is replaced, the new one is served and a warning is logged."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from armarium.foundation.files import landlock
from support.client import connected
from support.sandbox_in_process import between, sandbox
from support.server import ServerProcess
from support.trees import make_tree

pytestmark = pytest.mark.anyio

MODES = ["off", "auto"] if landlock.supported_abi() else ["off"]


def replaced_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and record.name.endswith("sandbox.roots")
    ]


@pytest.mark.parametrize("mode", MODES)
async def test_a_removed_and_recreated_root_is_served_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    root = tmp_path / "root"
    make_tree(root, {"old.txt": "old"})
    async with sandbox({"root": root}, tmp_path / "state", landlock=mode) as tools:
        await tools.call("read_file", root="root", path="old.txt")
        shutil.rmtree(root)
        make_tree(root, {"new.txt": "new"})

        listed = await tools.call("list_folder", root="root", path="")
        read = await tools.call("read_file", root="root", path="new.txt")
        found = await tools.call("grep", root="root", pattern="new")
        await tools.call("write_file", root="root", path="sub/written.txt", content="w")
        gone = await tools.fails("read_file", root="root", path="old.txt")

    assert [entry["name"] for entry in listed["entries"]] == ["new.txt"]
    assert (read["content"], found["total_matches"], gone.code) == ("new", 1, "NOT_FOUND")
    assert (root / "sub/written.txt").read_text() == "w"
    assert replaced_warnings(caplog) == ["the directory of a root was replaced; the new one is served"]


@pytest.mark.parametrize("mode", MODES)
async def test_writes_after_a_swap_land_in_the_new_directory(tmp_path: Path, mode: str) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    make_tree(tmp_path, {"root/a.txt": "a", "root.new/a.txt": "b", "other/x.txt": "x"})
    async with sandbox({"root": root, "other": other}, tmp_path / "state", landlock=mode) as tools:
        await tools.call("write_file", root="root", path="first.txt", content="1")
        root.rename(tmp_path / "root.old")
        (tmp_path / "root.new").rename(root)
        await tools.call("write_file", root="root", path="second.txt", content="2")
        await tools.move("other:x.txt", "root:x.txt")
        assert (await tools.call("read_file", root="root", path="a.txt"))["content"] == "b"

        # And back: whichever directory is at the path is the root.
        root.rename(tmp_path / "root.new")
        (tmp_path / "root.old").rename(root)
        await tools.copy("root:first.txt", "other:first.txt")
    assert sorted(os.listdir(root)) == ["a.txt", "first.txt"]
    assert sorted(os.listdir(tmp_path / "root.new")) == ["a.txt", "second.txt", "x.txt"]
    assert os.listdir(other) == ["first.txt"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_missing_root_is_one_clear_error_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    root = tmp_path / "root"
    make_tree(tmp_path, {"root/a.txt": "a", "other/b.txt": "b"})
    async with sandbox({"root": root, "other": tmp_path / "other"}, tmp_path / "state", landlock=mode) as tools:
        root.rename(tmp_path / "away")
        for tool, more in (("list_folder", {}), ("write_file", {"content": ""}), ("grep", {"pattern": "a"})):
            error = await tools.fails(tool, root="root", path="a.txt", **more)
            assert (error.code, error.retryable, error.details["root"]) == ("ROOT_UNAVAILABLE", True, "root")
            assert str(tmp_path) not in error.message
        error = await tools.fails("move", **between("other:b.txt", "root:b.txt"))
        assert (error.code, error.details["root"]) == ("ROOT_UNAVAILABLE", "root")
        assert (await tools.call("read_file", root="other", path="b.txt"))["content"] == "b"

        (tmp_path / "away").rename(root)
        assert (await tools.call("read_file", root="root", path="a.txt"))["content"] == "a"
    assert replaced_warnings(caplog) == [
        "the directory of a root is missing",
        "the directory of a root is available again",
    ]


async def test_a_root_inside_another_cannot_be_turned_into_a_link_out(tmp_path: Path) -> None:
    make_tree(tmp_path, {"outer/inner/a.txt": "a", "outside/secret.txt": "s"})
    (tmp_path / "outer/link").symlink_to(tmp_path / "outside")
    roots = {"outer": tmp_path / "outer", "inner": tmp_path / "outer/inner"}
    async with sandbox(roots, tmp_path / "state", landlock="off") as tools:
        await tools.move("outer:inner", "outer:away")
        await tools.move("outer:link", "outer:inner")
        error = await tools.fails("read_file", root="inner", path="secret.txt")
    assert error.code == "ROOT_UNAVAILABLE"


async def test_a_process_that_is_confined_as_a_whole_says_that_it_must_be_restarted(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make_tree(root, {"a.txt": "old"})
    config = {
        "host": "127.0.0.1",
        "roots": [{"name": "root", "path": str(root), "allowed_tools": ["*"]}],
    }
    with ServerProcess.mcp_filesystem(tmp_path, config) as server:
        async with connected(server.url) as client:
            root.rename(tmp_path / "old")
            make_tree(root, {"a.txt": "new"})
            if not landlock.supported_abi():
                assert (await client.call("read_file", root="root", path="a.txt"))["content"] == "new"
                return
            for _ in range(3):
                error = await client.fails("read_file", root="root", path="a.txt")
                assert (error["code"], error["hint"]) == ("ROOT_UNAVAILABLE", "restart the server")
            shutil.rmtree(root)
            (tmp_path / "old").rename(root)
            assert (await client.call("read_file", root="root", path="a.txt"))["content"] == "old"

        def is_warning(line: dict[str, Any]) -> bool:
            return "replaced by one that may not be opened" in line.get("msg", "")

        server.wait_for_log(is_warning)
        assert sum(map(is_warning, server.log)) == 1


async def test_many_replacements_leave_no_descriptors_open(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    async with sandbox({"root": root}, tmp_path / "state", landlock="off") as tools:
        await tools.call("list_folder", root="root", path="")
        before = len(os.listdir("/proc/self/fd"))
        for number in range(30):
            root.rename(tmp_path / f"old-{number}")
            root.mkdir()
            await tools.call("list_folder", root="root", path="")
        assert len(os.listdir("/proc/self/fd")) <= before + 2
