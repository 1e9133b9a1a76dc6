"""One request of a client and its answer: JSON by default, an event stream as soon as there is more to say."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast

import anyio
import orjson
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, RequestId
from pydantic import ValidationError
from starlette.types import Message, Send

from armarium.foundation.tools import Json
from armarium.surfaces.mcp.dispatch import Caller
from armarium.surfaces.mcp.gate import respond
from armarium.surfaces.mcp.sessions import Session

_log = logging.getLogger(__name__)

_REQUEST_CANCELLED = -32800
_STREAM_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}


class Exchange:
    """One request of the client and its answer: what the SDK's runner speaks to while it works on it."""

    can_send_request: bool

    def __init__(
        self, session: Session, message: Json, caller: Caller, send: Send | None, *, may_stream: bool = False
    ) -> None:
        self._session = session
        self._message = message
        self._send = send
        self._streaming = False
        self._sending = anyio.Lock()
        self.can_send_request = may_stream
        self.transport = TransportContext(kind="streamable-http", can_send_request=may_stream)
        self.request_id = cast(RequestId | None, message.get("id"))
        # The credential belongs to this call alone, so the caller travels with the message, not with the session.
        self.message_metadata = ServerMessageMetadata(
            request_context=Caller(caller.principal, caller.surface, session.id, caller.credential)
        )
        self.cancel_requested = anyio.Event()

    async def run(self) -> bool:
        """Work on the request and send its answer; False if that is an error."""
        assert self._send is not None
        request_id = self._message["id"]
        running = self._session.running
        answer: Json = {"error": {"code": _REQUEST_CANCELLED, "message": "Request cancelled"}}
        with anyio.CancelScope() as scope:
            running[request_id] = scope
            try:
                answer = await self._outcome()
            finally:
                if running.get(request_id) is scope:  # a client that used the id again has put its own there
                    del running[request_id]
        reply: Json = {"jsonrpc": "2.0", "id": request_id, **answer}
        if self._streaming:
            await self._send(event(reply))
            await self._send({"type": "http.response.body", "body": b""})
        else:
            await respond(self._send, 200, orjson.dumps(reply), {"mcp-session-id": self._session.id})
        return "result" in answer

    async def _outcome(self) -> Json:
        try:
            result = await self._session.runner.on_request(self, self._message["method"], self._message.get("params"))
        except MCPError as error:
            return {"error": error.error.model_dump(mode="json", exclude_none=True)}
        except ValidationError:
            return {"error": {"code": INVALID_PARAMS, "message": "Invalid request parameters"}}
        except Exception:  # noqa: BLE001 the edge of the surface: the text of a surprise stays in the log
            _log.exception("a request failed unexpectedly", extra={"method": self._message["method"]})
            return {"error": {"code": INTERNAL_ERROR, "message": "Internal error"}}
        return {"result": result}

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if not self.can_send_request:
            raise NoBackChannelError(method)
        return await self._session.ask(self._stream, method, params, opts)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        if self.can_send_request:
            await self._stream({"jsonrpc": "2.0", "method": method, "params": dict(params or {})})

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        params = cast(Json, self._message.get("params") or {})
        meta = cast(Json, params.get("_meta") or {})
        if (token := meta.get("progressToken")) is not None:
            details = {"progressToken": token, "progress": progress, "total": total, "message": message}
            await self.notify(
                "notifications/progress", {name: value for name, value in details.items() if value is not None}
            )

    async def _stream(self, message: Json) -> None:
        """Say something before the answer: from now on the response is an event stream."""
        assert self._send is not None
        async with self._sending:
            if not self._streaming:
                await start_stream(self._send, self._session.id)
                self._streaming = True
            await self._send(event(message))


async def start_stream(send: Send, session_id: str) -> None:
    """Begin an event stream instead of a single answer."""
    headers = _STREAM_HEADERS | {"mcp-session-id": session_id}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": encoded})


def event(message: Json) -> Message:
    """One message on an event stream."""
    body = b"event: message\ndata: " + orjson.dumps(message) + b"\n\n"
    return {"type": "http.response.body", "body": body, "more_body": True}
