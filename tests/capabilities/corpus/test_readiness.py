"""Searches wait for the first index, use the newest one, and fail if there will be none."""

from __future__ import annotations

from typing import Any, cast

import anyio
import pytest

from armarium.capabilities.corpus.errors import CorpusError, StoreCorrupt
from armarium.capabilities.corpus.query.search import Readiness, Searcher

DEADLINE_S = 20.0
FIRST, SECOND = (cast(Searcher, object()) for _ in range(2))


async def test_a_question_waits_for_the_first_index_and_then_goes_to_the_newest() -> None:
    readiness = Readiness()
    got: list[Any] = []

    async def ask() -> None:
        got.append(await readiness.searcher())

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            assert got == []
            readiness.use(FIRST)
        readiness.use(SECOND)
        await ask()
    assert got == [FIRST, SECOND]


async def test_who_waits_already_is_told_that_there_will_be_no_index_and_so_is_who_asks_later() -> None:
    readiness = Readiness()
    told: list[str] = []

    async def ask() -> None:
        try:
            await readiness.searcher()
        except CorpusError as error:
            told.append(error.code)

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            readiness.fail(StoreCorrupt("damaged"))
        await ask()
    assert told == [StoreCorrupt.code] * 2


async def test_an_index_that_is_lost_is_not_searched_any_more() -> None:
    readiness = Readiness()
    readiness.use(FIRST)
    readiness.fail(StoreCorrupt("damaged"))
    with pytest.raises(StoreCorrupt):
        await readiness.searcher()
