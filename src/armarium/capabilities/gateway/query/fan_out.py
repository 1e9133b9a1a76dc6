"""Asks several servers concurrently, each with its own deadline; a failure affects only that server."""

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
"""Added to the deadline, since the upstream itself enforces the deadline of a call and learns from it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FanOutResult(Generic[T]):
    """The results by server."""

    answered: dict[str, T] = field(default_factory=dict[str, T])
    failed: dict[str, GatewayError] = field(default_factory=dict[str, GatewayError])
    elapsed_ms: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Job(Generic[T]):
    """A request to one server, and its deadline."""

    ask: Callable[[], Awaitable[T]]
    within_s: float


async def ask_all(jobs: Mapping[str, Job[T]]) -> FanOutResult[T]:
    """Run all jobs concurrently and wait until each has succeeded, failed or timed out."""
    result: FanOutResult[T] = FanOutResult()

    async def ask(server: str, job: Job[T]) -> None:
        started = time.perf_counter()
        try:
            with anyio.move_on_after(job.within_s + _GRACE_S) as scope:
                result.answered[server] = await job.ask()
            if scope.cancelled_caught:
                result.failed[server] = UpstreamTimeout(f"{server} did not respond within {job.within_s:g} seconds")
        except GatewayError as error:
            result.failed[server] = error
        except ArmariumError as error:
            result.failed[server] = UpstreamUnavailable(f"{server} failed: {error.message}", hint=error.hint)
        except Exception as error:  # noqa: BLE001 an unexpected error of one server must not affect the others
            # The location only: a message may quote a response, which may contain a secret.
            where = "".join(traceback.format_tb(error.__traceback__))
            facts = {"server": server, "failure": type(error).__name__, "where": where}
            _log.error("a server's response could not be processed", extra=facts)
            result.failed[server] = UpstreamProtocol(f"{server} sent a response that cannot be processed")
        result.elapsed_ms[server] = round((time.perf_counter() - started) * 1000, 3)

    async with anyio.create_task_group() as tasks:
        for server, job in jobs.items():
            tasks.start_soon(ask, server, job)
    return result
