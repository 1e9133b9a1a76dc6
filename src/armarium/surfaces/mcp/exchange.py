"""Connects one client message to the SDK's runner, for every transport."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

import anyio
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, RequestId
from pydantic import ValidationError

from armarium.foundation.schema import Json
from armarium.foundation.surrogates import has_unpaired_surrogate
from armarium.surfaces.caller import Caller
from armarium.surfaces.mcp.session import SendMessage, Session

_log = logging.getLogger(__name__)

_REQUEST_CANCELLED = -32800


class InvalidMessage(Exception):
    """The value is not a JSON-RPC 2.0 message; the text of the exception says why."""


def check_message(value: object) -> Json:
    """The value as a request, a notification or a response; raises `InvalidMessage`."""
    message = cast(Json, value) if isinstance(value, dict) else {}
    if message.get("jsonrpc") != "2.0":
        raise InvalidMessage("it must be one JSON-RPC 2.0 message")
    if "method" in message and not isinstance(message["method"], str):
        raise InvalidMessage("`method` must be a string")
    if "id" in message and (isinstance(message["id"], bool) or not isinstance(message["id"], str | int)):
        raise InvalidMessage("`id` must be a string or an integer")
    if has_unpaired_surrogate(str(message.get("id"))):
        raise InvalidMessage("`id` contains an unpaired surrogate, and could not be repeated in the response")
    if "method" not in message and "id" not in message:
        raise InvalidMessage("it is neither a request, a notification nor a response")
    if not isinstance(message.get("params", {}), dict):
        raise InvalidMessage("`params` must be an object")
    return message


class Exchange:
    """One request and its response. `send` sends the client messages before the response, if that is possible."""

    def __init__(self, session: Session, message: Json, caller: Caller, send: SendMessage | None) -> None:
        self._session = session
        self._message = message
        self._send = send
        self.can_send_request = send is not None
        self.transport = _transport(caller.surface, self.can_send_request)
        self.request_id = cast(RequestId | None, message.get("id"))
        # The credential belongs to this call, so the caller is attached to the message, not to the session.
        if caller.session != session.id:
            caller = replace(caller, session=session.id)
        self.message_metadata = ServerMessageMetadata(request_context=caller)
        self.cancel_requested = anyio.Event()
        self.cancelled = False
        """Whether the client cancelled the request."""

    async def reply(self) -> Json:
        """Run the request; returns the response message."""
        request_id = self._message["id"]
        running = self._session.running
        answer: Json = {"error": {"code": _REQUEST_CANCELLED, "message": "Request cancelled"}}
        with anyio.CancelScope() as scope:
            running[request_id] = scope
            try:
                answer = await self._outcome()
            finally:
                if running.get(request_id) is scope:  # the client may have reused the id meanwhile
                    del running[request_id]
        self.cancelled = scope.cancelled_caught
        return {"jsonrpc": "2.0", "id": request_id, **answer}

    async def _outcome(self) -> Json:
        try:
            result = await self._session.runner.on_request(self, self._message["method"], self._message.get("params"))
        except MCPError as error:
            return {"error": error.error.model_dump(mode="json", exclude_none=True)}
        except ValidationError:
            return {"error": {"code": INVALID_PARAMS, "message": "Invalid request parameters"}}
        except Exception:  # noqa: BLE001 the edge of the surface: internal details stay in the log
            _log.exception("a request failed unexpectedly", extra={"method": self._message["method"]})
            return {"error": {"code": INTERNAL_ERROR, "message": "Internal error"}}
        if self._message["method"] == "initialize":
            self._session.trim_client_params()
        return {"result": result}

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if self._send is None:
            raise NoBackChannelError(method)
        return await self._session.send_request(self._send, method, params, opts)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        if self._send is not None:
            await self._send({"jsonrpc": "2.0", "method": method, "params": dict(params or {})})

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        params = cast(Json, self._message.get("params") or {})
        meta = cast(Json, params.get("_meta") or {})
        if (token := meta.get("progressToken")) is not None:
            details = {"progressToken": token, "progress": progress, "total": total, "message": message}
            await self.notify(
                "notifications/progress", {name: value for name, value in details.items() if value is not None}
            )


@lru_cache
def _transport(kind: str, can_send_request: bool) -> TransportContext:
    return TransportContext(kind=kind, can_send_request=can_send_request)


async def receive_notification(session: Session, message: Json, caller: Caller) -> None:
    """Handle a notification of the client."""
    params = cast(Json | None, message.get("params"))
    if message["method"] == "notifications/cancelled":
        session.cancel(cancelled_request_id_from_params(params))
    await session.runner.on_notify(Exchange(session, message, caller, None), message["method"], params)
