"""The HTTP application: MCP endpoints, other surfaces, health and metrics."""

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
from armarium.surfaces.http_errors import HttpError
from armarium.surfaces.http_responses import respond
from armarium.surfaces.mcp.http_endpoint import McpEndpoint
from armarium.surfaces.mcp.server import McpServer
from armarium.surfaces.mcp.sessions import Sessions
from armarium.surfaces.origins import AllowedOrigins


class HttpSurface(Protocol):
    """Another surface that is served beside the MCP endpoints."""

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """The routes of the surface."""
        ...

    def close_streams(self) -> None:
        """End the listening streams."""
        ...

    def end_calls(self) -> None:
        """Cancel the calls in progress; their callers get an error."""
        ...


class McpApp:
    """Everything that is served over HTTP."""

    def __init__(
        self,
        servers: Mapping[str, McpServer],
        gate: Gate,
        sessions: Sessions,
        metrics: Metrics,
        *,
        beside: HttpSurface | None = None,
        not_ready: Callable[[], Sequence[str]] = lambda: (),
        keep_alive_s: float = 15.0,
    ) -> None:
        self._sessions = sessions
        self._beside = beside
        self._endpoints = [
            (path, McpEndpoint(server, gate, sessions, keep_alive_s=keep_alive_s)) for path, server in servers.items()
        ]
        self.asgi = Starlette(
            routes=[
                Route("/health", _health(not_ready)),
                Route("/metrics", _MetricsEndpoint(gate, metrics)),
                *(Route(path, endpoint) for path, endpoint in self._endpoints),
                *(Route(f"{path}/", _SlashRedirect(gate)) for path, _ in self._endpoints),
                *(beside.routes if beside is not None else ()),
            ],
            middleware=_cors_middleware(gate.allowed_origins),
        )
        # Starlette's own redirects repeat the Host header before the gate has checked it.
        self.asgi.router.redirect_slashes = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve requests and expire sessions inside the block."""
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
        """End the listening streams, so that a shutdown need not wait for them."""
        for _, endpoint in self._endpoints:
            endpoint.close_streams()
        if self._beside is not None:
            self._beside.close_streams()

    @property
    def takes_sockets(self) -> bool:
        """Whether any route is a WebSocket."""
        return any(isinstance(route, WebSocketRoute) for route in self.asgi.routes)

    async def end_calls(self) -> None:
        """Cancel the calls in progress on all surfaces; their callers get an error."""
        if self._beside is not None:
            self._beside.end_calls()
        await self._sessions.end_all()


def _cors_middleware(allowed_origins: AllowedOrigins) -> list[Middleware]:
    """CORS headers for the allowed origins. The gate still checks every request."""
    if not allowed_origins:
        return []
    exposed = ["Mcp-Session-Id", "X-MCP-Session-Expired", "WWW-Authenticate", "Retry-After", "Allow"]
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=sorted(allowed_origins.exact),
            allow_origin_regex=allowed_origins.pattern,
            allow_methods=methods,
            allow_headers=["*"],
            expose_headers=exposed,
        )
    ]


def _health(not_ready: Callable[[], Sequence[str]]) -> Callable[[Request], Awaitable[Response]]:
    async def health(request: Request) -> Response:
        if missing := not_ready():
            return PlainTextResponse(f"degraded: {', '.join(missing)}", status_code=503)
        return PlainTextResponse("ok")

    return health


class _SlashRedirect:
    """Redirects a path with a trailing slash to the path without it."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._gate.check_address(scope)
        except HttpError as error:
            await self._gate.send_error(error, scope, send)
            return
        query = scope["query_string"].decode("latin-1")
        location = scope["path"].rstrip("/") + (f"?{query}" if query else "")
        await respond(send, 307, headers={"location": location})


class _MetricsEndpoint:
    """Serves the metrics. They show what callers do, so they require a key."""

    def __init__(self, gate: Gate, metrics: Metrics) -> None:
        self._gate = gate
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._gate.admit_reader(scope)
        except HttpError as error:
            await self._gate.send_error(error, scope, send)
            return
        response = Response(self._metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")
        await response(scope, receive, send)
