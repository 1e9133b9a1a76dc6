"""Reports every request to a server when it ends: its outcome and its duration."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from armarium.capabilities.gateway.errors import GatewayError

RequestKind = Literal["call", "list"]
OnRequest = Callable[[str, RequestKind, str, float], None]
"""Receives every request: server, kind, outcome, seconds."""


@dataclass(slots=True)
class RequestOutcome:
    name: str = "success"
    """`success`, `error` if the tool reported a failure, `cancelled`, `internal` if the gateway failed, or the code of
    the error."""


@contextmanager
def record_request(on_request: OnRequest, server: str, kind: RequestKind) -> Generator[RequestOutcome]:
    """Report the request made in the block. It is a success unless the block sets another outcome or raises."""
    outcome = RequestOutcome()
    started = time.perf_counter()
    try:
        yield outcome
    except GatewayError as error:
        outcome.name = error.code
        raise
    except BaseException as error:
        outcome.name = "internal" if isinstance(error, Exception) else "cancelled"
        raise
    finally:
        on_request(server, kind, outcome.name, time.perf_counter() - started)
