"""Bytes of files that a call sends to its client or receives from it, beside its arguments and its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from armarium.foundation.errors import ArmariumError

if TYPE_CHECKING:
    from armarium.foundation.tools import Call


class RangeNotSatisfiable(ArmariumError):
    """The file ends before the requested range begins."""

    code, http_status = "RANGE_NOT_SATISFIABLE", 416


class TransferEnded(ArmariumError):
    """The client disconnected, or was too slow, before the transfer was complete."""

    code, http_status = "TRANSFER_ENDED", 408


class TransferRequired(ArmariumError):
    """The tool transfers bytes, and the call did not come over HTTP."""

    code, http_status = "TRANSFER_REQUIRED", 400


@dataclass(frozen=True, slots=True)
class ByteSource:
    """The content of one file as it was when it was opened."""

    name: str
    """The last component of its path, as the file system has it."""
    size: int
    tag: str
    """Identifies the content: it changes when the content changes. Of letters, digits and `-`."""
    read: Callable[[int, int], Awaitable[bytes]]
    """Reads up to a number of bytes from an offset on. Raises if the content changed since."""


class ByteTransfer(Protocol):
    """The bytes of one call's HTTP request and response."""

    @property
    def length(self) -> int | None:
        """The number of bytes that the client is going to send, if it said so."""
        ...

    @property
    def received(self) -> int:
        """The bytes that were received so far."""
        ...

    @property
    def sent(self) -> int:
        """The bytes that were sent so far."""
        ...

    def blocks(self) -> AsyncIterator[bytes]:
        """What the client sends, block by block. Raises `TransferEnded` if it stops."""
        ...

    async def send(self, source: ByteSource) -> int:
        """Send the file, or the part that the client wants. Returns the number of bytes. Raises `TransferEnded`."""
        ...


def transfer_of(call: Call) -> ByteTransfer:
    """The transfer of a call; raises if the call did not come as an HTTP request for bytes."""
    if call.transfer is None:
        raise TransferRequired("only HTTP requests transfer bytes", hint="use `/api/raw`")
    return call.transfer
