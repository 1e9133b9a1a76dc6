"""Every request to a server is told once it is over, however it ended: answered, failed, refused without trying."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from armarium.capabilities.gateway.errors import GatewayError

Request = Literal["call", "list"]
OnRequest = Callable[[str, Request, str, float], None]
"""Told of every request: the server, what was asked of it, how it ended, and after how many seconds."""


@dataclass(slots=True)
class Ending:
    """How a request ended: `success`, `error` when the tool itself says that it failed, `cancelled`,
    `internal` when the fault is ours, or the code of what went wrong."""

    outcome: str = "success"


@contextmanager
def counted(on_request: OnRequest | None, server: str, request: Request) -> Generator[Ending]:
    """Tell of what the block does. Its ending is a success unless it says otherwise, or raises."""
    ending = Ending()
    started = time.perf_counter()
    try:
        yield ending
    except GatewayError as error:
        ending.outcome = error.code
        raise
    except BaseException as error:
        ending.outcome = "internal" if isinstance(error, Exception) else "cancelled"
        raise
    finally:
        if on_request is not None:
            on_request(server, request, ending.outcome, time.perf_counter() - started)
