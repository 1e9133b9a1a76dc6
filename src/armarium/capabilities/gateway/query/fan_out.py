"""Asks several servers at once: each within its own time, and none of them spoils the answers of the others."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

from armarium.capabilities.gateway.errors import GatewayError, UpstreamProtocol, UpstreamTimeout, UpstreamUnavailable
from armarium.foundation.errors import ArmariumError

_log = logging.getLogger(__name__)

_GRACE_S = 0.5
"""A connection keeps the deadline of its own calls, and learns from it; this is for what it does besides."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """What came back, by server."""

    answered: dict[str, T] = field(default_factory=dict[str, T])
    failed: dict[str, GatewayError] = field(default_factory=dict[str, GatewayError])
    elapsed_ms: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Job(Generic[T]):
    """One server's part, and how long it may take."""

    ask: Callable[[], Awaitable[T]]
    within_s: float


async def ask_all(jobs: Mapping[str, Job[T]]) -> Answers[T]:
    """Ask all at once and wait until each has answered, failed, or had its time."""
    answers: Answers[T] = Answers()

    async def ask(server: str, job: Job[T]) -> None:
        started = time.perf_counter()
        try:
            with anyio.move_on_after(job.within_s + _GRACE_S) as patience:
                answers.answered[server] = await job.ask()
            if patience.cancelled_caught:
                answers.failed[server] = UpstreamTimeout(f"{server} did not answer within {job.within_s:g} seconds")
        except GatewayError as error:
            answers.failed[server] = error
        except ArmariumError as error:
            answers.failed[server] = UpstreamUnavailable(f"{server} failed: {error.message}", hint=error.hint)
        except Exception as error:  # noqa: BLE001 whatever one server made of us, the others' answers are not lost
            # Where it happened, and not what was said: a message can quote an answer, and that a secret.
            where = "".join(traceback.format_tb(error.__traceback__))
            facts = {"server": server, "failure": type(error).__name__, "where": where}
            _log.error("a server's answer could not be dealt with", extra=facts)
            answers.failed[server] = UpstreamProtocol(f"{server} answered with something that cannot be used")
        answers.elapsed_ms[server] = round((time.perf_counter() - started) * 1000, 3)

    async with anyio.create_task_group() as tasks:
        for server, job in jobs.items():
            tasks.start_soon(ask, server, job)
    return answers
