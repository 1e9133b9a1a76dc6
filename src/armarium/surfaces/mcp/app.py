"""The HTTP application: MCP endpoints, other surfaces, health and metrics."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

import anyio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from armarium.foundation.errors import NotInGroup
from armarium.foundation.security.access import not_in_group
from armarium.foundation.security.identity import Principal
from armarium.foundation.telemetry import Metrics
from armarium.surfaces.gate import Gate, GatedApp
from armarium.surfaces.http.forwarded import ForwardedRequests, IpNetwork
from armarium.surfaces.http.origins import AllowedOrigins
from armarium.surfaces.http.responses import HttpError, json_rpc_error, respond
from armarium.surfaces.mcp.http_endpoint import McpEndpoint
from armarium.surfaces.mcp.server import McpServer
from armarium.surfaces.mcp.sessions import Sessions
from armarium.surfaces.web.endpoint import json_error
from armarium.surfaces.web.openapi import API_ROOT

_UNIQUE_HEADERS = frozenset({b"authorization", b"host", b"origin"})


class HttpSurface(Protocol):
    """Another surface that is served beside the MCP endpoints."""

    @property
    def routes(self) -> Sequence[BaseRoute]: ...

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
        further: Sequence[BaseRoute] = (),
        not_ready: Callable[[], Sequence[str]] = lambda: (),
        keep_alive_s: float = 15.0,
        may_read_metrics: Callable[[Principal], bool] = lambda principal: True,
        trusted_proxies: Sequence[IpNetwork] = (),
    ) -> None:
        self._gate = gate
        self._sessions = sessions
        self._metrics = metrics
        self._may_read_metrics = may_read_metrics
        self._beside = beside
        self._not_ready = not_ready
        self._endpoints = [
            (path, McpEndpoint(server, gate, sessions, keep_alive_s=keep_alive_s)) for path, server in servers.items()
        ]
        self.asgi = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/metrics", GatedApp(gate, self._serve_metrics)),
                *(Route(path, GatedApp(gate, endpoint.serve)) for path, endpoint in self._endpoints),
                *(Route(f"{path}/", GatedApp(gate, self._redirect)) for path, _ in self._endpoints),
                *further,
                *(beside.routes if beside is not None else ()),
            ],
            middleware=[
                Middleware(ForwardedRequests, trusted_proxies),
                Middleware(UniqueHeaders, gate),
                *_cors_middleware(gate.allowed_origins),
            ],
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

    async def _health(self, request: Request) -> Response:
        if missing := self._not_ready():
            return PlainTextResponse(f"degraded: {', '.join(missing)}", status_code=503)
        return PlainTextResponse("ok")

    async def _serve_metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The metrics show what all callers do, so they require a group."""
        if not self._may_read_metrics((await self._gate.admit_reader(scope)).principal):
            raise HttpError(403, not_in_group().message, reason=NotInGroup.code)
        content_type = {"content-type": "text/plain; version=0.0.4; charset=utf-8"}
        await respond(send, 200, self._metrics.exposition(), content_type)

    async def _redirect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Redirect a path with a trailing slash to the path without it."""
        self._gate.check_address(scope)
        query = scope["query_string"].decode("latin-1")
        location = scope["path"].rstrip("/") + (f"?{query}" if query else "")
        await respond(send, 307, headers={"location": location})


class UniqueHeaders:
    """Rejects a request, whatever its path, if a header that identifies the caller is repeated.
    A proxy might have checked the other one."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = [name for name, _ in scope.get("headers", ()) if name in _UNIQUE_HEADERS]
        if len(names) == len(set(names)):
            await self._app(scope, receive, send)
            return
        repeated = next(name for name in names if names.count(name) > 1).decode()
        form = json_error if scope["path"].startswith(f"{API_ROOT}/") else json_rpc_error
        await self._gate.send_error(HttpError(400, f"the header {repeated} is repeated"), scope, send, form)


def _cors_middleware(allowed_origins: AllowedOrigins) -> list[Middleware]:
    """CORS headers for the allowed origins. The gate still checks every request."""
    if not allowed_origins:
        return []
    cors = Middleware(
        CORSMiddleware,
        allow_origins=sorted(allowed_origins.exact),
        allow_origin_regex=allowed_origins.pattern,
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["*"],
        expose_headers=["Mcp-Session-Id", "X-MCP-Session-Expired", "WWW-Authenticate", "Retry-After", "Allow"],
    )
    return [cors]
