"""Events between capabilities, and the bus that delivers them."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from armarium.foundation.refs import FileRef
from armarium.foundation.security.identity import Principal

_log = logging.getLogger(__name__)

EventT = TypeVar("EventT")
Handler = Callable[[EventT], Awaitable[None]]

_PUBLIC_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class FileChanged:
    """A file or directory was changed through Armarium."""

    ref: FileRef
    change: Literal["created", "modified", "removed"]
    is_directory: bool
    by: Principal
    host_path: str | None = None
    """Path on this machine, for subscribers in this process. It must not reach callers."""


@dataclass(frozen=True, slots=True)
class FileMoved:
    """A file or directory was moved through Armarium. Published before the `FileChanged` events of both paths, so that
    a subscriber can treat them as one move."""

    ref: FileRef
    previous: FileRef
    host_path: str
    """New path on this machine. Like `previous_host_path`, it must not reach callers."""
    previous_host_path: str
    is_directory: bool
    by: Principal


@dataclass(frozen=True, slots=True)
class ScannerFinding:
    """What a built-in scanner found, and where; never the text itself."""

    rule: str
    line: int
    """Line number, from 1."""
    digest: str
    """Keyed hash of the text. It distinguishes texts without revealing them."""


@dataclass(frozen=True, slots=True)
class FileScanned:
    """A built-in scanner scanned a file. Published if the findings are not empty, or were not empty before."""

    scanner: str
    host_path: str
    findings: tuple[ScannerFinding, ...]


@dataclass(frozen=True, slots=True)
class PublicEvent:
    """An event for clients outside the server, such as a console. Everything in it reaches them."""

    name: str
    data: dict[str, Any]
    """JSON."""
    groups: frozenset[str] | None = None
    """Only callers in one of these groups receive it, and the local owner; None means all callers."""
    capability: str | None = None
    """The capability that it is about. Only callers who may read there receive it."""

    def __post_init__(self) -> None:
        if _PUBLIC_NAME.fullmatch(self.name) is None:
            raise ValueError(f"{self.name!r} is not a name of an event")

    def is_for(self, principal: Principal) -> bool:
        """Whether the caller may receive it."""
        return self.groups is None or principal.is_owner or not self.groups.isdisjoint(principal.groups)


class Events:
    """Delivers each event to the handlers of its type, in the order of their subscription."""

    def __init__(self) -> None:
        self._handlers: dict[type, list[Callable[[Any], Awaitable[None]]]] = defaultdict(list)

    def subscribe(self, kind: type[EventT], handler: Handler[EventT]) -> Callable[[], None]:
        """Call `handler` for every event of that type, until the returned function is called."""
        self._handlers[kind].append(handler)
        return lambda: self._handlers[kind].remove(handler)

    def is_heard(self, kind: type) -> bool:
        """Whether there are subscribers, for events that are expensive to create."""
        return bool(self._handlers.get(kind))

    async def publish(self, event: object) -> None:
        """Deliver the event to all handlers. A failing handler is logged, because the reported change has happened."""
        for handler in tuple(self._handlers[type(event)]):
            try:
                await handler(event)
            except Exception:  # noqa: BLE001 the boundary between capabilities: one handler must not break another
                _log.exception("an event handler failed", extra={"event": type(event).__name__})
