"""Messages on their way to a server: one that cannot be written fails the request that it is, and nothing else."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from armarium.capabilities.gateway.upstreams.errors import UNWRITABLE

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

_log = logging.getLogger(__name__)


class Outgoing:
    """Takes messages from the client, each in the task of whoever sends it, and passes on those that can be written.

    Behind it a transport works for all callers at once: what fails there ends the connection.
    """

    def __init__(
        self, send: Callable[[SessionMessage, bytes], Awaitable[None]], close: Callable[[], Awaitable[None]]
    ) -> None:
        self._send = send
        self._close = close

    async def send(self, item: SessionMessage, /) -> None:
        """Pass the message on, with its JSON. Raises what the client knows as the request's own failure."""
        from mcp import MCPError
        from mcp_types import JSONRPCRequest

        try:
            plain = item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
            text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except (ValueError, TypeError, RecursionError):
            # Without its cause, whose text quotes the arguments.
            if isinstance(item.message, JSONRPCRequest):
                raise MCPError(UNWRITABLE, "it cannot be written as JSON") from None
            _log.warning("a message to a server cannot be written")
            return
        await self._send(item, text)

    async def aclose(self) -> None:
        """Send no more."""
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()
