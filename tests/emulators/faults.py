"""Faults of providers. A fault appended to an emulator's `faults` applies to one request, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Applies to the next request, or to the next one whose path ends in `on`."""

    on: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Fault):
    """An error status, with the error body of the provider by default."""

    status: int = 400
    body: Json | str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimited(Fault):
    """Status 429, in one of the forms that providers use."""

    retry_after: float | str | None = None
    shape: Literal["typed", "message", "detail"] = "typed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerError(Fault):
    """Status 5xx with the page of a proxy."""

    status: int = 503
    retry_after: float | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirected(Fault):
    """A redirect. Following it would send the key to another host."""

    location: str = "/elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent(Fault):
    """No response until the client disconnects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled(Fault):
    """A stream that stalls after some events, until the client disconnects."""

    after_events: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated(Fault):
    """A truncated response: a stream ends after some events, any other response in the middle of its body.

    `cleanly`: the chunked encoding is terminated, but the last event is missing.
    """

    after_events: int = 2
    cleanly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed(Fault):
    """Status 200 with an invalid body."""

    body: bytes = b'{"data": [{"embedding": [0.1, '


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlong(Fault):
    """A well-formed response that is far too long."""

    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable(Fault):
    """A response that a function changed: wrong dimensions, missing rows and so on.

    It is not validated against the schema. In a stream, each event is changed.
    """

    change: Callable[[Json], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Together(Fault):
    """The response is sent when enough requests for the barrier are in progress."""

    barrier: threading.Barrier
