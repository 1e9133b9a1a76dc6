"""What capabilities tell each other without knowing each other."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from armarium.foundation.identity import Principal
from armarium.foundation.refs import FileRef

_log = logging.getLogger(__name__)

EventT = TypeVar("EventT")
Handler = Callable[[EventT], Awaitable[None]]

_PUBLIC_NAME = re.compile(r"[a-z][a-z0-9_]*")


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
    digest: str
    """Tells one text from another and never what it is: made with a key that stays with the scanner."""


@dataclass(frozen=True, slots=True)
class FileScanned:
    """A scanner of our own looked at a file and found something, or finds no more what it had told before."""

    scanner: str
    host_path: str
    findings: tuple[ScannerFinding, ...]


@dataclass(frozen=True, slots=True)
class PublicEvent:
    """News for people and programs outside, such as a console. Everything in it reaches them."""

    name: str
    data: dict[str, Any]
    """JSON."""
    groups: frozenset[str] | None = None
    """Who may hear of it: callers with one of these groups; everybody who may call when None."""

    def __post_init__(self) -> None:
        if _PUBLIC_NAME.fullmatch(self.name) is None:
            raise ValueError(f"{self.name!r} is not a name of an event")

    def is_for(self, principal: Principal) -> bool:
        """Whether the caller may hear of it."""
        return self.groups is None or not self.groups.isdisjoint(principal.groups)


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
