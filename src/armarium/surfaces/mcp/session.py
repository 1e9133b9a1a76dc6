"""One MCP session: its connection, its requests in progress and the client's listening stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast
from uuid import uuid4

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server.connection import Connection
from mcp.server.runner import ServerRunner, aclose_shielded
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    REQUEST_TIMEOUT,
    ClientCapabilities,
    ErrorData,
    Implementation,
    InitializeRequestParams,
    RequestId,
)
from pydantic import ValidationError

from armarium.foundation.schema import Json
from armarium.foundation.security.identity import Principal
from armarium.surfaces.mcp.server import McpServer

SendMessage = Callable[[Json], Awaitable[None]]

_MAX_CLIENT_PARAMS = 2048
_MAX_CLIENT_NAME = 100
_SESSION_ENDED = {"code": CONNECTION_CLOSED, "message": "the session has ended"}


class Session:
    """A session of one client, from its handshake until it is closed."""

    def __init__(self, server: McpServer, owner: Principal) -> None:
        self.id = uuid4().hex
        self.server = server
        self.owner = owner
        self.connection = Connection.for_loop(_StandingChannel(self), session_id=self.id)
        self.runner = ServerRunner(server, self.connection, {})
        self.running: dict[RequestId, anyio.CancelScope] = {}
        """The client's requests in progress, so that it can cancel them."""
        self.send: SendMessage | None = None
        """Sends messages to the client outside its requests, while its listening stream is open."""
        self.closed = anyio.Event()
        self._pending: dict[str, asyncio.Future[Json]] = {}

    async def forward_tool_changes(self, changes: MemoryObjectReceiveStream[None]) -> None:
        """Notify the client of each change of its tool list, once the handshake is complete."""
        await self.connection.initialized.wait()
        async for _ in changes:
            await self.connection.send_tool_list_changed()

    def trim_client_params(self) -> None:
        """Drop an unusually large handshake, which would stay in memory as long as the session."""
        params = self.connection.client_params
        if params is None or len(repr(params)) <= _MAX_CLIENT_PARAMS:
            return
        client = params.client_info
        self.connection.client_params = InitializeRequestParams(
            protocol_version=self.connection.protocol_version,
            capabilities=ClientCapabilities(),
            client_info=Implementation(name=client.name[:_MAX_CLIENT_NAME], version=client.version[:_MAX_CLIENT_NAME]),
        )

    def cancel(self, request_id: RequestId | None) -> None:
        """Cancel a request of the client. An unknown id is ignored."""
        if request_id is not None and (scope := self.running.get(request_id)) is not None:
            scope.cancel()

    async def send_request(
        self, send: SendMessage, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None
    ) -> Json:
        """Send a request to the client through `send`, and wait for its response."""
        request_id = f"armarium-{uuid4().hex}"
        answered = self._pending[request_id] = asyncio.get_running_loop().create_future()
        answer: Json | None = None
        try:
            await send(_message(method, params, request_id))
            with anyio.move_on_after((opts or {}).get("timeout")):
                answer = await answered
        finally:
            del self._pending[request_id]
        if answer is None:
            raise MCPError(REQUEST_TIMEOUT, f"the client did not answer {method} in time")
        if "error" in answer:
            try:
                raise MCPError.from_error_data(ErrorData.model_validate(answer["error"]))
            except ValidationError:
                raise MCPError(INTERNAL_ERROR, "the client answered with an invalid error") from None
        if not isinstance(result := answer.get("result"), dict):
            raise MCPError(INTERNAL_ERROR, "the client answered with no result")
        return cast(Json, result)

    def receive_response(self, message: Json) -> None:
        """Accept the client's response to one of our requests. An unknown id is ignored."""
        answered = self._pending.get(str(message.get("id")))
        if answered is not None and not answered.done():
            answered.set_result(message)

    async def close(self) -> None:
        """Cancel all requests in both directions and release the connection."""
        self.closed.set()
        for scope in self.running.values():
            scope.cancel()
        for request_id in self._pending:
            self.receive_response({"id": request_id, "error": _SESSION_ENDED})
        await aclose_shielded(self.connection)


class _StandingChannel:
    """The SDK's channel to the client outside its requests: the listening stream, if one is open."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if self._session.send is None:
            raise NoBackChannelError(method)
        return await self._session.send_request(self._session.send, method, params, opts)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        if self._session.send is not None:
            await self._session.send(_message(method, params))


def _message(method: str, params: Mapping[str, Any] | None, request_id: str | None = None) -> Json:
    message: Json = {"jsonrpc": "2.0", "method": method}
    if request_id is not None:
        message["id"] = request_id
    if params is not None:
        message["params"] = dict(params)
    return message
