"""Whoever must be alone waits until the others are out, is alone then, and is not waited for by more than it must."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.turns import Turns

DEADLINE_S = 30.0


class Worker:
    """Runs one test in its turn, for as long as it is told to."""

    def __init__(self, directory: Path, *, alone: bool = False) -> None:
        self._turns = Turns(directory)
        self._alone = alone
        self._inside = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        with self._turns.turn(alone=self._alone):
            self._inside.set()
            self._over.wait(DEADLINE_S)
        self._turns.close()

    @property
    def is_inside(self) -> bool:
        return self._inside.is_set()

    def comes_in(self) -> bool:
        return self._inside.wait(DEADLINE_S)

    def leave(self) -> None:
        self._over.set()
        self._thread.join(DEADLINE_S)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where the workers of a run meet."""
    before = threading.active_count()
    yield tmp_path
    assert threading.active_count() == before, "a worker still waits for its turn"


def waits_at_the_door(place: Path) -> bool:
    """Whether somebody holds the door, which only who waits does for longer than a moment."""
    locks = Path("/proc/locks").read_text()
    return f":{(place / 'door').stat().st_ino} " in locks


def test_tests_that_need_not_be_alone_run_together(place: Path) -> None:
    first, second = Worker(place), Worker(place)
    assert first.comes_in()
    assert second.comes_in()
    first.leave()
    second.leave()


def test_who_must_be_alone_comes_in_after_the_last_has_left_and_before_who_came_later(place: Path) -> None:
    first, second = Worker(place), Worker(place)
    assert first.comes_in()
    assert second.comes_in()
    alone = Worker(place, alone=True)
    while not waits_at_the_door(place):
        assert not alone.is_inside
    later = Worker(place)
    first.leave()
    assert not alone.is_inside
    assert not later.is_inside
    second.leave()
    assert alone.comes_in()
    assert not later.is_inside
    alone.leave()
    assert later.comes_in()
    later.leave()
