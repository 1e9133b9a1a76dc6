"""Task groups raise a single exception as itself."""

from __future__ import annotations

import anyio
import pytest

from armarium.foundation.concurrency.tasks import background, task_group


async def fail(error: Exception) -> None:
    raise error


async def test_the_only_exception_of_a_task_is_raised_as_itself() -> None:
    with pytest.raises(KeyError, match="only"):
        async with task_group() as tasks:
            tasks.start_soon(fail, KeyError("only"))


async def test_an_exception_of_the_block_is_raised_as_itself() -> None:
    with pytest.raises(KeyError, match="block"):
        async with task_group():
            raise KeyError("block")


async def test_an_exception_is_found_through_nested_groups() -> None:
    with pytest.raises(KeyError, match="inner"):
        async with task_group(), anyio.create_task_group() as inner:
            inner.start_soon(fail, KeyError("inner"))


async def test_several_exceptions_stay_in_their_group() -> None:
    async def fail_twice() -> None:
        async with task_group() as tasks:
            tasks.start_soon(fail, KeyError("one"))
            tasks.start_soon(fail, ValueError("two"))

    with pytest.raises(ExceptionGroup) as raised:
        await fail_twice()
    assert {type(error) for error in raised.value.exceptions} == {KeyError, ValueError}


async def test_background_work_ends_with_its_block() -> None:
    started, ended = anyio.Event(), anyio.Event()

    async def work() -> None:
        try:
            started.set()
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with background(work):
        await started.wait()
        assert not ended.is_set()
    assert ended.is_set()


async def test_background_work_that_fails_ends_the_block_with_its_exception() -> None:
    with pytest.raises(KeyError, match="work"):
        async with background(lambda: fail(KeyError("work"))):
            await anyio.sleep_forever()
