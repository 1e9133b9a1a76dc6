"""Serializes messages to a server; a message that cannot be serialized fails only its own request."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from anyio.abc import ObjectSendStream

from armarium.capabilities.gateway.upstreams.errors import UNWRITABLE

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

_log = logging.getLogger(__name__)


class MessageWriter(ObjectSendStream["SessionMessage"]):
    """The write stream that the client uses. It serializes each message in the sender's task. The transport behind it
    works for all callers at once, so an error there would end the whole connection."""

    def __init__(
        self, send: Callable[[SessionMessage, bytes], Awaitable[None]], close: Callable[[], Awaitable[None]]
    ) -> None:
        self._send = send
        self._close = close

    async def send(self, item: SessionMessage) -> None:
        """Send the message with its JSON. Raises `MCPError`, which fails only this request."""
        from mcp import MCPError
        from mcp_types import JSONRPCRequest

        try:
            plain = item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
            text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except (ValueError, TypeError, RecursionError):
            # Without its cause, whose text quotes the arguments.
            if isinstance(item.message, JSONRPCRequest):
                raise MCPError(UNWRITABLE, "it cannot be serialized as JSON") from None
            _log.warning("a message to a server cannot be serialized")
            return
        await self._send(item, text)

    async def aclose(self) -> None:
        await self._close()
