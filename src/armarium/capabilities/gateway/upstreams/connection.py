"""One MCP connection to a server, opened and closed by one task and shared by all callers."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import anyio
from pydantic import TypeAdapter, ValidationError

from armarium import __version__
from armarium.capabilities.gateway.config.files import ServerSpec, StdioTransport
from armarium.capabilities.gateway.errors import (
    CONTACT_ADMINISTRATOR,
    GatewayError,
    UpstreamProtocol,
    UpstreamUnavailable,
)
from armarium.capabilities.gateway.upstreams.errors import (
    SessionLost,
    connect_failed,
    connection_lost,
    from_exception,
    timeout_error,
)
from armarium.capabilities.gateway.upstreams.process import ServerProcess
from armarium.capabilities.gateway.upstreams.scrubber import Scrubber
from armarium.capabilities.gateway.upstreams.tool_listing import ToolListing, UncheckedListings
from armarium.capabilities.gateway.upstreams.types import OnProgress, UpstreamLimits, UpstreamTool
from armarium.capabilities.gateway.upstreams.watchdog import Watchdog
from armarium.foundation.security.network import EXCLUDED, permits
from armarium.foundation.tools import Relayed

if TYPE_CHECKING:
    import mcp

_log = logging.getLogger(__name__)

_RAW_RESULT: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
_MAX_PAGES = 100
_RELIST_PAUSE_S = 0.5
"""The minimum interval between tool listings, whatever the server announces."""


@dataclass(eq=False, repr=False)
class UpstreamConnection:
    """`run`, in a task of its own, lasts as long as the connection; `failure` then says why it ended. The client's
    cancel scopes must be exited by the task that entered them, so callers never open or close anything."""

    spec: ServerSpec
    limits: UpstreamLimits
    scrubber: Scrubber
    watchdog: Watchdog
    on_tools_changed: Callable[[str], None]

    def __post_init__(self) -> None:
        self._connect_timeout_s = self.spec.timeouts.connect_s or self.limits.connect_timeout_s
        self._client: mcp.Client | None = None
        self._process: ServerProcess | None = None
        self._stop = anyio.Event()
        self._tools_announced = anyio.Event()
        self.opened = anyio.Event()
        """Set once it can be used, or has failed."""
        self.opening: anyio.CancelScope | None = None
        """Holds the deadline for opening the connection."""
        self.was_waited_for = False
        """Whether a call timed out while the connection was being opened."""
        self.ended = anyio.Event()
        self.failure: GatewayError | None = None
        self.tools: list[UpstreamTool] = []
        self.notes: tuple[str, ...] = ()
        """What operators should know about its tools."""
        self.server_info: tuple[str, str] | None = None

    @property
    def usable(self) -> bool:
        """Whether calls can be made."""
        return self._client is not None and not self._stop.is_set()

    @property
    def is_overdue(self) -> bool:
        """Whether opening takes longer than a call may, so that further calls need not wait."""
        return self.was_waited_for and not self.opened.is_set()

    @property
    def pid(self) -> int | None:
        """The process id of a server that the gateway started."""
        return self._process.pid if self._process else None

    @property
    def noise(self) -> int:
        """Number of messages that were not MCP."""
        return self._process.noise if self._process else 0

    def stop(self) -> None:
        """End the connection. Calls in flight fail; opening is aborted."""
        self._stop.set()
        if self.opening is not None and not self.opened.is_set():
            self.opening.cancel()

    async def run(self) -> None:
        """Open the connection, serve until it is stopped or lost, close it."""
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + self._connect_timeout_s) as self.opening:
                if not self._stop.is_set():
                    await self._serve(self.opening)
            if self.opening.cancelled_caught and not self._stop.is_set():
                self.failure = timeout_error(
                    self.spec.name,
                    f"did not start within {self._connect_timeout_s:g} s",
                    hint="raise `timeouts.connect_s` of the server if it needs longer",
                    is_noisy=self.noise > 0,
                )
        except GatewayError as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001 any error of a transport ends this connection only
            self.failure = from_exception(self.spec.name, error, self.scrubber.scrub)
            _log.debug("a connection ended", extra={"server": self.spec.name, "error": type(error).__name__})
        finally:
            if not self.opened.is_set():
                status = self._process.exit_status if self._process else None
                self.failure = connect_failed(self.spec.name, self.failure, status)
            self._client = None
            self._stop.set()
            self.opened.set()
            self.ended.set()

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnProgress | None) -> Relayed:
        """Call a tool. If the caller is cancelled, the request is cancelled at the server."""
        import mcp_types as types

        params = types.CallToolRequestParams(name=tool, arguments=dict(arguments))
        result = await self._request(types.CallToolRequest(params=params), on_progress)
        structured = result.get("structuredContent")
        return Relayed(
            content=list(result.get("content") or ()),
            structured=structured if isinstance(structured, dict) else None,  # pyright: ignore[reportUnknownArgumentType] any JSON
            is_error=result.get("isError") is True,
        )

    async def ping(self, within_s: float) -> bool:
        """Whether the server responds in time. An error response to the ping counts as well."""
        import mcp_types as types

        with anyio.move_on_after(within_s):
            try:
                await self._request(types.PingRequest(), None)
            except (UpstreamUnavailable, UpstreamProtocol) as error:
                return isinstance(error, SessionLost)
            except GatewayError:
                return True
            return True
        return False

    async def _serve(self, opening: anyio.CancelScope) -> None:
        import mcp
        from mcp_types import Implementation

        # The client logs messages it cannot parse, and these may contain a caller's token.
        for name in ("mcp.client", "client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        client = mcp.Client(
            self._streams(),
            # Every server supports the handshake; trying the sessionless protocol first would delay older ones.
            mode="legacy",
            cache=None,
            client_info=Implementation(name="armarium", version=__version__),
            message_handler=self._on_message,
        )
        async with client:
            self._client = client
            self.tools = await self._list_tools()
            info = client.server_info
            self.server_info = (info.name, info.version) if info else None
            opening.deadline = math.inf
            self.opened.set()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow_tools)
                await self._stop.wait()
                tasks.cancel_scope.cancel()
            self._client = None

    @asynccontextmanager
    async def _streams(self) -> AsyncGenerator[Any]:
        async with self._transport() as (incoming, outgoing):
            yield UncheckedListings(incoming), outgoing

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        transport = self.spec.transport
        assert transport is not None, "only a disabled server has none"
        if isinstance(transport, StdioTransport):
            self._process = ServerProcess(
                self.spec.name, transport, self.limits.max_answer_bytes, self.scrubber.scrub, self.watchdog
            )
            return self._process.open(self._stop.set)
        from armarium.capabilities.gateway.upstreams.http import http_streams

        if not permits(transport.url):
            raise UpstreamUnavailable(
                f"`{self.spec.name}` cannot be reached: {EXCLUDED} its host",
                hint=CONTACT_ADMINISTRATOR,
                server=self.spec.name,
            )
        return http_streams(transport, self.limits, self._connect_timeout_s, on_session_lost=self._stop.set)

    async def _on_message(self, message: object) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._tools_announced.set()

    async def _follow_tools(self) -> None:
        while True:
            await self._tools_announced.wait()
            # An announcement during the listing causes another one.
            self._tools_announced = anyio.Event()
            try:
                with anyio.fail_after(self.limits.discover_timeout_s):
                    tools = await self._list_tools()
            except (GatewayError, TimeoutError):
                _log.debug("changed tools could not be listed", extra={"server": self.spec.name})
                continue
            if tools != self.tools:
                self.tools = tools
                self.on_tools_changed(self.spec.name)
            await anyio.sleep(_RELIST_PAUSE_S)

    async def _list_tools(self) -> list[UpstreamTool]:
        import mcp_types as types

        assert self._client is not None
        if self._client.server_capabilities.tools is None:
            return []
        listing = ToolListing(self.spec)
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
            page = await self._request(types.ListToolsRequest(params=params), None)
            listing.add(page)
            cursor = page.get("nextCursor")
            if not cursor or listing.is_full:
                break
        self.notes = listing.notes(has_more=bool(cursor))
        return listing.tools

    async def _request(self, request: Any, on_progress: OnProgress | None) -> dict[str, Any]:
        from mcp import MCPError

        client = self._client
        if client is None:
            raise self.failure or connection_lost(self.spec.name)
        try:
            # The client validates the result against the protocol; the raw result is what we return.
            return await client.session.send_request(request, _RAW_RESULT, progress_callback=cast("Any", on_progress))
        except (MCPError, ValidationError) as error:
            # Without its cause, whose text quotes the server.
            raise from_exception(self.spec.name, error, self.scrubber.scrub) from None
