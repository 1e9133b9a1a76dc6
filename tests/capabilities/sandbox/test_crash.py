"""A writer killed at any moment leaves the old file or the new one; an append may have begun."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from support import crash_writer
from support.crash_writer import content_of

KILLS = 35
"""For each of the three kinds of writing: at least 105 in all."""
MOST_DELAY_S = 0.02
DEADLINE_S = 30
MOST_MISSES = 40
"""Kills between two writes for each one in the middle of a write. A short write is easily missed on a busy machine."""


@dataclass
class Killed:
    """How far a writer had come."""

    begun: int = 0
    done: int = 0


class Writers:
    """A process that has loaded everything already and forks a new writer for each kill."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._commands, self._reports = process.stdin, process.stdout

    @classmethod
    @contextmanager
    def of(cls, directory: Path) -> Generator[Writers]:
        command = [sys.executable, crash_writer.__file__, str(directory)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
            try:
                yield cls(process)
            finally:
                process.kill()

    def kill_one(self, how: str, chance: random.Random) -> Killed:
        """Let a writer write, and kill it after a few writes and a moment more."""
        self._commands.write(f"{how}\n".encode())
        pid = int(self._next_words()[1])
        killed = Killed()
        for _ in range(2 * chance.randint(0, 3) + 1):
            self._note(killed, self._next_words())
        # The moment: as long as nothing new is said, but not longer than chance has it.
        select.select([self._reports], [], [], chance.uniform(0, MOST_DELAY_S))
        os.kill(pid, signal.SIGKILL)
        while (words := self._next_words()) != ["dead"]:
            self._note(killed, words)
        return killed

    @staticmethod
    def _note(killed: Killed, words: list[str]) -> None:
        if words[0] == "begin":
            killed.begun = int(words[1])
        else:
            killed.done = int(words[1])

    def _next_words(self) -> list[str]:
        ready, _, _ = select.select([self._reports], [], [], DEADLINE_S)
        assert ready, "the writer says nothing"
        line = self._reports.readline()
        assert line, "the writers are gone"
        return line.decode().split()


def kill_writers(directory: Path, how: str, kills: int) -> None:
    file = directory / "file.txt"
    chance = random.Random(how)
    in_the_middle = 0
    with Writers.of(directory) as writers:
        for number in count(1):
            if number > kills and in_the_middle > kills // 4:
                break
            assert number <= kills * MOST_MISSES, "the kills missed the writes"
            file.write_text(content_of(how, 0))
            file.chmod(0o640)
            killed = writers.kill_one(how, chance)

            content = file.read_text()
            assert is_whole(how, content, killed), f"{killed}: {content[:30]!r} … {content[-30:]!r}"
            assert file.stat().st_mode & 0o777 == 0o640
            in_the_middle += killed.begun > killed.done
    others = [name for name in os.listdir(directory) if name != "file.txt"]
    assert all(name.startswith(".armarium-") and name.endswith(".tmp") for name in others)
    assert len(others) <= in_the_middle


def is_whole(how: str, content: str, killed: Killed) -> bool:
    """Whether the file is in the state before the kill or after it; of an append, the beginning may be there."""
    before, after = content_of(how, killed.done), content_of(how, killed.begun)
    if how == "append":
        return content.startswith(before) and after.startswith(content)
    return content in (before, after)


@pytest.mark.parametrize("how", ["overwrite", "append", "patch"])
def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path, how: str) -> None:
    kill_writers(tmp_path, how, KILLS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", ["overwrite", "append", "patch"])
def test_thousands_of_killed_writers_leave_whole_files(tmp_path: Path, how: str) -> None:
    kill_writers(tmp_path, how, 100 * KILLS)
