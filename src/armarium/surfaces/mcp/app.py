"""The HTTP application: MCP endpoints, health, metrics."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

import anyio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send

from armarium.foundation.telemetry import Metrics
from armarium.surfaces.gate import Gate
from armarium.surfaces.http_errors import Refused, respond
from armarium.surfaces.mcp.http_endpoint import McpEndpoint
from armarium.surfaces.mcp.server import McpServer
from armarium.surfaces.mcp.sessions import Sessions
from armarium.surfaces.origins import AllowedOrigins


class Beside(Protocol):
    """Another surface that is served next to the MCP endpoints."""

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """What it answers to."""
        ...

    def close_streams(self) -> None:
        """Ask those who listen to go."""
        ...

    def end_calls(self) -> None:
        """Cut short what is still under way; the callers are told."""
        ...


class McpApp:
    """Everything that answers over HTTP, ready to be served."""

    def __init__(
        self,
        servers: Mapping[str, McpServer],
        gate: Gate,
        sessions: Sessions,
        metrics: Metrics,
        *,
        beside: Beside | None = None,
        not_ready: Callable[[], Sequence[str]] = lambda: (),
    ) -> None:
        self._sessions = sessions
        self._beside = beside
        self._endpoints = [(path, McpEndpoint(server, gate, sessions)) for path, server in servers.items()]
        self.asgi = Starlette(
            routes=[
                Route("/health", _health(not_ready)),
                Route("/metrics", _Scrape(gate, metrics)),
                *(Route(path, endpoint) for path, endpoint in self._endpoints),
                *(Route(f"{path}/", _WithoutSlash(gate)) for path, _ in self._endpoints),
                *(beside.routes if beside is not None else ()),
            ],
            middleware=_for_browsers(gate.allowed_origins),
        )
        # Starlette's own redirects repeat any Host, before it is checked.
        self.asgi.router.redirect_slashes = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """While inside, requests can be served and sessions time out."""
        async with AsyncExitStack() as endpoints:
            for _, endpoint in self._endpoints:
                await endpoints.enter_async_context(endpoint.running())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._sessions.sweep_forever)
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()
                    with anyio.CancelScope(shield=True):
                        await self._sessions.end_all()

    def close_streams(self) -> None:
        """Ask listening clients to go, so that a shutdown need not wait for them."""
        for _, endpoint in self._endpoints:
            endpoint.close_streams()
        if self._beside is not None:
            self._beside.close_streams()

    @property
    def takes_sockets(self) -> bool:
        """Whether there is anything to reach by a WebSocket."""
        return any(isinstance(route, WebSocketRoute) for route in self.asgi.routes)

    async def end_calls(self) -> None:
        """Cut short what is still under way, in any session or beside them; the callers are told."""
        if self._beside is not None:
            self._beside.end_calls()
        await self._sessions.end_all()


def _for_browsers(allowed_origins: AllowedOrigins) -> list[Middleware]:
    """What a browser wants to hear before it lets a page of an allowed origin call; the gate decides all the same."""
    if not allowed_origins:
        return []
    told = ["Mcp-Session-Id", "X-MCP-Session-Expired", "WWW-Authenticate", "Retry-After", "Allow"]
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=sorted(allowed_origins.exact),
            allow_origin_regex=allowed_origins.pattern,
            allow_methods=methods,
            allow_headers=["*"],
            expose_headers=told,
        )
    ]


def _health(not_ready: Callable[[], Sequence[str]]) -> Callable[[Request], Awaitable[Response]]:
    async def health(request: Request) -> Response:
        if missing := not_ready():
            return PlainTextResponse(f"degraded: {', '.join(missing)}", status_code=503)
        return PlainTextResponse("ok")

    return health


class _WithoutSlash:
    """Sends a client that put a slash behind the path to the path itself."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._gate.check_address(scope)
        except Refused as refusal:
            await self._gate.turn_away(refusal, scope, send)
            return
        query = scope["query_string"].decode("latin-1")
        place = scope["path"].rstrip("/") + (f"?{query}" if query else "")
        await respond(send, 307, headers={"location": place})


class _Scrape:
    """Metrics tell what callers do, so they are for callers with a key."""

    def __init__(self, gate: Gate, metrics: Metrics) -> None:
        self._gate = gate
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._gate.admit_reader(scope)
        except Refused as refusal:
            await self._gate.turn_away(refusal, scope, send)
            return
        response = Response(self._metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")
        await response(scope, receive, send)
