"""Task groups that raise a single exception as itself, the errors in exception groups, and a lock for each caller."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import anyio
from anyio.abc import TaskGroup

Group = BaseExceptionGroup[BaseException]


@asynccontextmanager
async def task_group() -> AsyncGenerator[TaskGroup]:
    """An anyio task group. If it fails with one exception, that exception is raised, not a group that contains it.
    Where both the block and its tasks fail, or several tasks do, the exception group is raised."""
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        raise _only_member(group) from None


@asynccontextmanager
async def background(work: Callable[[], Coroutine[Any, Any, object]]) -> AsyncGenerator[None]:
    """Run `work` while the block runs, and cancel it at the end of the block."""
    async with task_group() as tasks:
        tasks.start_soon(work)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


def _only_member(group: Group) -> BaseException:
    """The only exception in a group, through any nesting, or the group itself."""
    if len(group.exceptions) != 1:
        return group
    member = group.exceptions[0]
    return _only_member(cast(Group, member)) if isinstance(member, BaseExceptionGroup) else member


def leaf_errors(error: BaseException) -> Iterator[BaseException]:
    """The errors in an exception group, through any nesting, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for each in cast(Group, error).exceptions:
            yield from leaf_errors(each)
    else:
        yield error


class PerCaller:
    """A lock or a semaphore for each caller, dropped when nothing of the caller runs or waits."""

    def __init__(self, create: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        self._create = create
        self._in_use: dict[str, tuple[AbstractAsyncContextManager[object], list[None]]] = {}

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncGenerator[None]:
        """Wait for a turn of the caller, which lasts as long as the block."""
        if caller not in self._in_use:
            self._in_use[caller] = self._create(), []
        lock, users = self._in_use[caller]
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                del self._in_use[caller]
