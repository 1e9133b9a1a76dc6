"""Appends happen in place: programs that have the file open keep working, and only the new bytes are written."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
from pathlib import Path

import pytest

from armarium.capabilities.sandbox.changes import writes
from support.sandbox_in_process import sandbox

pytestmark = pytest.mark.anyio


async def test_a_program_that_has_the_log_open_keeps_its_lines(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    async with sandbox({"root": tmp_path}, tmp_path / "state") as tools:
        with log.open("a", buffering=1) as program:
            program.write("program 1\n")
            answer = await tools.call("write_file", root="root", path="app.log", content="agent\n", mode="append")
            program.write("program 2\n")
    assert log.read_text() == "program 1\nagent\nprogram 2\n"
    assert answer["sha256"] == hashlib.sha256(b"program 1\nagent\n").hexdigest()
    assert (answer["created"], answer["size"]) == (False, 6)


async def test_one_byte_appended_to_ten_gigabytes_writes_one_byte(tmp_path: Path) -> None:
    log = tmp_path / "large.log"
    with log.open("wb") as file:
        file.truncate(10 << 30)
    before = log.stat()
    written = _bytes_written()
    async with sandbox({"root": tmp_path}, tmp_path / "state") as tools:
        answer = await tools.call("write_file", root="root", path="large.log", content="x", mode="append")
    after = log.stat()
    assert (after.st_ino, after.st_size) == (before.st_ino, (10 << 30) + 1)
    assert after.st_blocks * 512 < 1 << 20
    assert _bytes_written() - written < 1 << 20
    assert answer["size"] == 1
    assert "sha256" not in answer, "the whole file had to be read"


def _bytes_written() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


async def test_an_append_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"x" * 1000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    async with sandbox({"root": tmp_path}, tmp_path / "state") as tools:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1500, limits[1]))
            error = await tools.fails("write_file", root="root", path="app.log", content="y" * 4000, mode="append")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, ignored)
    assert error.code == "STORAGE_FAILURE"
    assert log.read_bytes() == b"x" * 1000


async def test_what_a_program_wrote_behind_a_failing_append_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "app.log"
    log.write_text("one\n")
    write = os.write

    def interrupted(fd: int, content: bytes | memoryview) -> int:
        write(fd, b"hal")
        with log.open("a") as program:
            program.write("program\n")
        raise OSError(28, "No space left on device")

    async with sandbox({"root": tmp_path}, tmp_path / "state") as tools:
        with monkeypatch.context() as patched:
            patched.setattr(writes.os, "write", interrupted)
            await tools.fails("write_file", root="root", path="app.log", content="half\n", mode="append")
    assert log.read_text() == "one\nhalprogram\n"


async def test_an_append_creates_the_file_and_its_parents(tmp_path: Path) -> None:
    async with sandbox({"root": tmp_path}, tmp_path / "state") as tools:
        first = await tools.call("write_file", root="root", path="new/log.txt", content="a", mode="append")
        second = await tools.call("write_file", root="root", path="new/log.txt", content="b", mode="append")
    assert (first["created"], second["created"]) == (True, False)
    assert (tmp_path / "new/log.txt").read_text() == "ab"
    assert second["sha256"] == hashlib.sha256(b"ab").hexdigest()


async def test_an_append_that_expects_another_content_is_a_conflict(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("a")
    async with sandbox({"root": tmp_path}, tmp_path / "state") as tools:
        append = {"root": "root", "path": "log.txt", "content": "b", "mode": "append"}
        error = await tools.fails("write_file", **append, if_match="0" * 64)
        assert error.code == "CONFLICT"
        await tools.call("write_file", **append, if_match=hashlib.sha256(b"a").hexdigest())
    assert (tmp_path / "log.txt").read_text() == "ab"
