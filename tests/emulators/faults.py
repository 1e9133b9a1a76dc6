"""What can go wrong at a vendor, appended to an emulator's `faults`: each befalls one request, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Befalls the next request, or the next one whose path ends in `on`."""

    on: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Fault):
    """An error status, with a body of the emulator's vendor unless one is given."""

    status: int = 400
    body: Json | str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimited(Fault):
    """Status 429. Vendors write it in several ways: with a type, as a bare message, as a detail."""

    retry_after: float | str | None = None
    shape: Literal["typed", "message", "detail"] = "typed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerError(Fault):
    """Status 5xx with a proxy's page."""

    status: int = 503
    retry_after: float | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirected(Fault):
    """A redirect, which would carry the key elsewhere."""

    location: str = "/elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent(Fault):
    """No answer until the client leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled(Fault):
    """A stream that goes quiet after so many events, until the client leaves."""

    after_events: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated(Fault):
    """An answer that is cut off: a stream after so many events, anything else in the middle of its body.

    `cleanly`: the stream ends as if it were complete, without its last event.
    """

    after_events: int = 2
    cleanly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed(Fault):
    """Status 200 with a body that is not what it claims to be."""

    body: bytes = b'{"data": [{"embedding": [0.1, '


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlong(Fault):
    """A well-formed answer that is much longer than any that was asked for."""

    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable(Fault):
    """An answer that was changed before it is sent: wrong dimensions, missing rows, whatever the function makes of it.

    It is not checked against the vendor's schema. In a stream it changes each event.
    """

    change: Callable[[Json], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Together(Fault):
    """The request is answered once as many as the barrier wants are there at the same time."""

    barrier: threading.Barrier
