"""Asks several servers concurrently, each with its own deadline; a failure affects only that server."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

from armarium.capabilities.gateway.errors import GatewayError, UpstreamProtocol, UpstreamTimeout, UpstreamUnavailable
from armarium.capabilities.gateway.servers.remote import RagServer
from armarium.foundation.errors import ArmariumError

_log = logging.getLogger(__name__)

_GRACE_S = 0.5
"""Added to the deadline, since the upstream itself enforces the deadline of a call and learns from it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FanOutResult(Generic[T]):
    answered: dict[str, T] = field(default_factory=dict[str, T])
    failed: dict[str, GatewayError] = field(default_factory=dict[str, GatewayError])
    elapsed_ms: dict[str, float] = field(default_factory=dict[str, float])


def milliseconds_since(started: float) -> float:
    """Milliseconds since a value of `time.perf_counter`."""
    return round((time.perf_counter() - started) * 1000, 3)


async def ask_all(
    servers: Iterable[RagServer],
    ask: Callable[[RagServer], Awaitable[T]],
    within_s: Callable[[RagServer], float],
    on_settled: Callable[[str, FanOutResult[T]], None] = lambda name, so_far: None,
) -> FanOutResult[T]:
    """Ask all servers concurrently and wait until each has succeeded, failed or timed out. `on_settled` receives the
    name of each when it has, and the results so far."""
    result: FanOutResult[T] = FanOutResult()

    async def ask_one(server: RagServer) -> None:
        name, deadline_s = server.spec.name, within_s(server)
        started = time.perf_counter()
        try:
            with anyio.move_on_after(deadline_s + _GRACE_S) as scope:
                result.answered[name] = await ask(server)
            if scope.cancelled_caught:
                result.failed[name] = UpstreamTimeout(f"{name} did not respond within {deadline_s:g} seconds")
        except GatewayError as error:
            result.failed[name] = error
        except ArmariumError as error:
            result.failed[name] = UpstreamUnavailable(f"{name} failed: {error.message}", hint=error.hint)
        except Exception as error:  # noqa: BLE001 an unexpected error of one server must not affect the others
            # The location only: a message may quote a response, which may contain a secret.
            where = "".join(traceback.format_tb(error.__traceback__))
            facts = {"server": name, "failure": type(error).__name__, "where": where}
            _log.error("a server's response could not be processed", extra=facts)
            result.failed[name] = UpstreamProtocol(f"{name} sent a response that cannot be processed")
        result.elapsed_ms[name] = milliseconds_since(started)
        on_settled(name, result)

    async with anyio.create_task_group() as tasks:
        for server in servers:
            tasks.start_soon(ask_one, server)
    return result
