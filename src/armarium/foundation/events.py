"""What capabilities tell each other without knowing each other."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from armarium.foundation.identity import Principal
from armarium.foundation.refs import FileRef

_log = logging.getLogger(__name__)

EventT = TypeVar("EventT")
Handler = Callable[[EventT], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class FileChanged:
    """A file or folder was changed through Armarium."""

    ref: FileRef
    change: Literal["created", "modified", "removed"]
    is_directory: bool
    by: Principal
    host_path: str | None = None
    """Where it is on this machine, for listeners in this process; never for callers."""


@dataclass(frozen=True, slots=True)
class FileMoved:
    """A file or folder got another place through Armarium.

    Told before the `FileChanged` of both places, so that whoever knows what moved need not take it for two changes.
    """

    ref: FileRef
    previous: FileRef
    host_path: str
    """Where it is now on this machine; like `previous_host_path`, never for callers."""
    previous_host_path: str
    is_directory: bool
    by: Principal


@dataclass(frozen=True, slots=True)
class ScannerFinding:
    """What a scanner of our own recognised, and where; never the text itself."""

    rule: str
    line: int
    """Counted from 1."""


@dataclass(frozen=True, slots=True)
class FileScanned:
    """A scanner of our own looked at a file and found something, or finds no more what it had told before."""

    scanner: str
    host_path: str
    findings: tuple[ScannerFinding, ...]


class Events:
    """Delivers each event to the handlers of its type, in the order they subscribed."""

    def __init__(self) -> None:
        self._handlers: dict[type, list[Callable[[Any], Awaitable[None]]]] = defaultdict(list)

    def subscribe(self, kind: type[EventT], handler: Handler[EventT]) -> Callable[[], None]:
        """Call `handler` for every event of that type, until the returned function is called."""
        self._handlers[kind].append(handler)
        return lambda: self._handlers[kind].remove(handler)

    def is_heard(self, kind: type) -> bool:
        """Whether anybody listens, for those to whom finding out what to tell is work."""
        return bool(self._handlers.get(kind))

    async def publish(self, event: object) -> None:
        """Tell everyone who asked. A handler that fails must not undo what already happened, so it is only logged."""
        for handler in tuple(self._handlers[type(event)]):
            try:
                await handler(event)
            except Exception:  # noqa: BLE001 the edge between capabilities: one listener must not break another
                _log.exception("a listener failed", extra={"event": type(event).__name__})
