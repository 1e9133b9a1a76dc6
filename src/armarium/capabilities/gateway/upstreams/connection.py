"""One connection to a server: a single task opens and closes it, everybody's calls go through it side by side."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, cast

import anyio
from pydantic import TypeAdapter, ValidationError

from armarium import __version__
from armarium.capabilities.gateway.config.files import ServerSpec, StdioTransport
from armarium.capabilities.gateway.errors import GatewayError, UpstreamProtocol, UpstreamUnavailable
from armarium.capabilities.gateway.upstreams.errors import SessionLost, from_exception, gone, not_connected, out_of_time
from armarium.capabilities.gateway.upstreams.process import ServerProcess
from armarium.capabilities.gateway.upstreams.scrubber import Scrubber
from armarium.capabilities.gateway.upstreams.types import CallResult, OnProgress, UpstreamLimits, UpstreamTool

if TYPE_CHECKING:
    import mcp

_log = logging.getLogger(__name__)

_AS_IT_CAME: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
_MOST_PAGES = 100
_MOST_TOOLS = 2000
_RELIST_PAUSE_S = 0.5
"""A server that keeps announcing new tools is asked for them no more often than this."""


def _hush_the_client() -> None:
    """Its messages about what it could not read quote what a server said, and that may hold a caller's token."""
    for talkative in ("mcp.client", "client"):
        logging.getLogger(talkative).setLevel(logging.CRITICAL)


class Connection:
    """Run `run` in a task of its own; it ends when the connection does, and `failure` then says why.

    The client's scopes have to be left by the task that entered them, so no caller ever opens or closes anything.
    """

    def __init__(
        self,
        spec: ServerSpec,
        limits: UpstreamLimits,
        scrubber: Scrubber,
        on_tools_changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._spec = spec
        self._limits = limits
        self._scrubber = scrubber
        self._on_tools_changed = on_tools_changed
        self._client: mcp.Client | None = None
        self._process: ServerProcess | None = None
        self._stop = anyio.Event()
        self._patience: anyio.CancelScope | None = None
        self._announced, self._announcements = anyio.create_memory_object_stream[None](1)
        self.opened = anyio.Event()
        """Set once it can be used, or never will be."""
        self.was_waited_for = False
        """Whether somebody gave up waiting for it to open."""
        self.ended = anyio.Event()
        self.failure: GatewayError | None = None
        self.tools: list[UpstreamTool] = []
        self.server_info: tuple[str, str] | None = None

    @property
    def usable(self) -> bool:
        """Whether calls can be made."""
        return self._client is not None and not self._stop.is_set()

    @property
    def is_overdue(self) -> bool:
        """Whether it takes longer to open than a call may: who comes later need not wait as well."""
        return self.was_waited_for and not self.opened.is_set()

    @property
    def pid(self) -> int | None:
        """The server's process, when it is one of ours."""
        return self._process.pid if self._process else None

    @property
    def noise(self) -> int:
        """Messages that were not MCP."""
        return self._process.noise if self._process else 0

    def stop(self) -> None:
        """End it; what is in flight fails, and an opening under way is broken off."""
        self._stop.set()
        if self._patience is not None and not self.opened.is_set():
            self._patience.cancel()

    async def run(self) -> None:
        """Open, serve until stopped or lost, close."""
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + self._connect_timeout_s) as self._patience:
                if not self._stop.is_set():
                    await self._serve(self._patience)
            if self._patience.cancelled_caught and not self._stop.is_set():
                self.failure = out_of_time(
                    self._spec.name,
                    f"did not start within {self._connect_timeout_s:g} s",
                    "raise `timeouts.connect_s` of the server if it needs longer",
                    is_noisy=self.noise > 0,
                )
        except GatewayError as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001 the edge of an owning task: whatever a transport raises ends this connection only
            self.failure = from_exception(self._spec.name, error, self._scrubber.scrubbed)
            _log.debug("a connection ended", extra={"server": self._spec.name, "error": type(error).__name__})
        finally:
            if not self.opened.is_set():
                status = self._process.exit_status if self._process else None
                self.failure = not_connected(self._spec.name, self.failure, status)
            self._client = None
            self._stop.set()
            self._announced.close()
            self._announcements.close()
            self.opened.set()
            self.ended.set()

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnProgress | None) -> CallResult:
        """Call a tool. Cancelling the caller cancels the request at the server."""
        import mcp_types as types

        params = types.CallToolRequestParams(name=tool, arguments=dict(arguments))
        answer = await self._request(types.CallToolRequest(params=params), on_progress)
        structured = answer.get("structuredContent")
        return CallResult(
            structured=structured if isinstance(structured, dict) else None,  # pyright: ignore[reportUnknownArgumentType] any JSON
            content=list(answer.get("content") or ()),
            is_error=answer.get("isError") is True,
            meta=answer.get("_meta"),
        )

    async def answers(self, within_s: float) -> bool:
        """Whether the server answers a ping; one that does not know pings and says so does."""
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

    @property
    def _connect_timeout_s(self) -> float:
        return self._spec.timeouts.connect_s or self._limits.connect_timeout_s

    async def _serve(self, patience: anyio.CancelScope) -> None:
        import mcp
        from mcp_types import Implementation

        _hush_the_client()
        client = mcp.Client(
            self._streams(),
            # Every server knows the handshake; asking for the newer way first would cost those that do not a wait.
            mode="legacy",
            cache=None,
            client_info=Implementation(name="armarium", version=__version__),
            message_handler=self._notice,
        )
        async with client:
            self._client = client
            self.tools = await self._listed()
            told = client.server_info
            self.server_info = (told.name, told.version) if told else None
            patience.deadline = math.inf
            self.opened.set()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow_tools)
                await self._stop.wait()
                tasks.cancel_scope.cancel()
            self._client = None

    def _streams(self) -> AbstractAsyncContextManager[Any]:
        transport = self._spec.transport
        if transport is None:
            raise UpstreamUnavailable(f"`{self._spec.name}` does not say how to reach it", server=self._spec.name)
        if isinstance(transport, StdioTransport):
            self._process = ServerProcess(
                self._spec.name, transport, self._limits.max_answer_bytes, self._scrubber.scrubbed
            )
            return self._process.opened(self._stop.set)
        from armarium.capabilities.gateway.upstreams.http import http_streams

        return http_streams(
            transport,
            connect_timeout_s=self._connect_timeout_s,
            max_answer_bytes=self._limits.max_answer_bytes,
            on_session_lost=self._stop.set,
        )

    async def _notice(self, message: object) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            try:
                self._announced.send_nowait(None)
            except (anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
                # One announcement that nobody looked at yet stands for all.
                return

    async def _follow_tools(self) -> None:
        async for _ in self._announcements:
            try:
                with anyio.fail_after(self._limits.discover_timeout_s):
                    tools = await self._listed()
            except (GatewayError, TimeoutError):
                _log.debug("new tools could not be listed", extra={"server": self._spec.name})
                continue
            if tools != self.tools:
                self.tools = tools
                await self._on_tools_changed()
            await anyio.sleep(_RELIST_PAUSE_S)

    async def _listed(self) -> list[UpstreamTool]:
        import mcp_types as types

        assert self._client is not None
        capabilities = self._client.server_capabilities
        if capabilities.tools is None:
            return []
        tools: list[UpstreamTool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._request(
                types.ListToolsRequest(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None), None
            )
            tools += [_tool(listed) for listed in page["tools"]]
            cursor = page.get("nextCursor")
            if not cursor or len(tools) >= _MOST_TOOLS:
                break
        return tools[:_MOST_TOOLS]

    async def _request(self, request: Any, on_progress: OnProgress | None) -> dict[str, Any]:
        from mcp import MCPError

        client = self._client
        if client is None:
            raise self.failure or gone(self._spec.name)
        try:
            # The client checks the answer against the protocol; what we pass on is what came over the wire.
            return await client.session.send_request(request, _AS_IT_CAME, progress_callback=cast("Any", on_progress))
        except (MCPError, ValidationError) as error:
            # Without its cause, whose text quotes what the server said.
            raise from_exception(self._spec.name, error, self._scrubber.scrubbed) from None


def _tool(listed: Mapping[str, Any]) -> UpstreamTool:
    return UpstreamTool(
        name=listed["name"],
        description=listed.get("description") or "",
        input_schema=listed["inputSchema"],
        output_schema=listed.get("outputSchema"),
        annotations=listed.get("annotations"),
        title=listed.get("title"),
    )
