"""Administration of servers: overview, reload, and changes to servers and their sources."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal, NotRequired

import anyio
import orjson
from anyio import to_thread
from pydantic import Field, WithJsonSchema
from typing_extensions import TypedDict

from armarium.capabilities.gateway.admin.masks import mask, remaining_masks, unmask
from armarium.capabilities.gateway.admin.trial import OfferedTool, Trial, offered_tool, try_server
from armarium.capabilities.gateway.config.entries import ServerEntry
from armarium.capabilities.gateway.config.files import (
    SCHEMA_KEY,
    ServerConfig,
    ServerKind,
    override_file,
    parse_entry,
    read_server_config,
    resolve_entries,
)
from armarium.capabilities.gateway.config.schema import server_config_schema
from armarium.capabilities.gateway.errors import GatewayError, InvalidSource, ProgramNotAllowed, ServerConfigInvalid
from armarium.capabilities.gateway.servers.live_servers import LiveServers
from armarium.capabilities.gateway.upstreams.types import UpstreamLimits
from armarium.capabilities.gateway.upstreams.upstream import Upstream
from armarium.foundation.errors import ConfigError
from armarium.foundation.files.state_files import replace_file
from armarium.foundation.routes import declare_route
from armarium.foundation.schema import Json
from armarium.foundation.security.access import ADMINISTER
from armarium.foundation.security.trust import Confirmations, sensitive_settings
from armarium.foundation.tools import Args, Call, NoArgs, declare_tool

Entries = dict[str, ServerEntry]
AnyObject = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]


_MAX_TRIALS: Final = 2
"""Servers that are tried at the same time. Each may be a process."""


class ServerArgs(Args):
    server: str = Field(min_length=1, max_length=64)
    """Its name."""


class PutServerArgs(ServerArgs):
    entry: AnyObject
    """The entry as in the configuration file."""
    kind: Literal["rag", "generic"] = "rag"
    """The file: `rag` for `rag-mcp.json`, `generic` for `mcp.json`."""


class ServerToolsArgs(ServerArgs):
    after: str | None = None
    """Where to continue: `next` of the previous page."""
    limit: int = Field(default=200, ge=1, le=500)


class ServerTools(TypedDict):
    tools: list[OfferedTool]
    total: int
    next: NotRequired[str]


class ServerHealth(TypedDict):
    server: str
    health: dict[str, Any]


class SourceArgs(ServerArgs):
    source: str = Field(min_length=1, max_length=512)
    """Its id."""


class PutSourceArgs(SourceArgs):
    hint: AnyObject
    """The hint as in the configuration file, without its id."""


class Administration:
    """The tools of administrators. Changes are written to the overrides, so that shipped defaults stay unchanged, and
    apply immediately."""

    def __init__(
        self, servers: LiveServers, allowed_commands: Collection[str] = (), limits: UpstreamLimits | None = None
    ) -> None:
        self._servers = servers
        self._allowed_commands = allowed_commands
        self._limits = limits or UpstreamLimits()
        self._lock = anyio.Lock()
        self._trials = anyio.CapacityLimiter(_MAX_TRIALS)

    async def servers(self, call: Call, args: NoArgs) -> Json:
        """List all servers with their health, the configuration files in use, and problems of newer files."""
        servers, config = self._servers, self._servers.config
        health = {each.server: _health_as_json(asdict(each)) for each in servers.upstreams.health()}
        return {
            "servers": [
                _describe(kind, name, entry) | {"health": health.get(name)}
                for kind, entries in config.entries.items()
                for name, entry in sorted(entries.items())
            ],
            "files": dict(config.origins),
            "last_reload": servers.last_reload.isoformat(timespec="milliseconds") if servers.last_reload else None,
            "problems": list(servers.last_problem.problems) if servers.last_problem else [],
        }

    async def server(self, call: Call, args: ServerArgs) -> Json:
        """Show the entry of one server; values that may be secret are masked."""
        config = self._servers.config
        kind = _kind_of(config, args.server)
        return _describe(kind, args.server, config.entries[kind][args.server])

    async def schema(self, call: Call, args: NoArgs) -> Json:
        """The JSON schema of `rag-mcp.json` and `mcp.json`."""
        return dict(server_config_schema())

    async def reload(self, call: Call, args: NoArgs) -> Json:
        """Reload the configuration files atomically."""
        return await self._servers.reload()

    async def put_server(self, call: Call, args: PutServerArgs) -> Json:
        """Create or replace a server and apply the change immediately."""
        return await self._change(args.server, lambda entries: self._put(entries, args), args.kind)

    async def check(self, call: Call, args: PutServerArgs) -> Trial:
        """Try an entry without saving it: connect to the server, list its tools and, if it is a RAG server, its
        sources. What could not be saved is not tried."""
        config = await to_thread.run_sync(read_server_config, self._servers.config_dir, self._servers.environ)
        entries = dict(config.entries[args.kind])
        self._put(entries, args)
        # A disabled server can be tried, too.
        entries[args.server] = entries[args.server].model_copy(update={"enabled": True})
        spec = resolve_entries({**config.entries, args.kind: entries}, self._servers.environ)[args.server]
        if spec.transport is None:
            problem = f"`{args.server}` has neither `command` nor `url`"
            raise ServerConfigInvalid(problem, problems=(problem,), hint="there is nothing to try")
        async with self._trials:
            return await try_server(call, spec, self._limits)

    async def reconnect(self, call: Call, args: ServerArgs) -> ServerHealth:
        """Open a new connection to a server now, without waiting for the next call or trial. Calls in flight fail."""
        upstream = self._upstream(args.server)
        with suppress(GatewayError):
            # The health says why it failed.
            await upstream.reconnect()
        return {"server": args.server, "health": _health_as_json(asdict(upstream.health()))}

    async def tools(self, call: Call, args: ServerToolsArgs) -> ServerTools:
        """List the tools of a server by name, as it describes them. Connects to it if necessary."""
        listed = sorted(await self._upstream(args.server).tools(), key=lambda tool: tool.name)
        following = [tool for tool in listed if args.after is None or tool.name > args.after]
        shown = [offered_tool(tool) for tool in following[: args.limit]]
        page: ServerTools = {"tools": shown, "total": len(listed)}
        if len(following) > args.limit:
            page["next"] = shown[-1]["name"]
        return page

    def _upstream(self, name: str) -> Upstream:
        if (upstream := self._servers.upstreams.get(name)) is None:
            _kind_of(self._servers.config, name)
            raise InvalidSource(f"`{name}` is disabled", hint="set `enabled` in its entry")
        return upstream

    def _put(self, entries: Entries, args: PutServerArgs) -> None:
        """Put the entry in place of the current one, whose values replace the masks. Raises if it is not valid, or if
        an administrator may not have it."""
        name, current = args.server, entries.get(args.server)
        unmasked = unmask(args.entry, _entry_as_json(current) if current is not None else {})
        if places := remaining_masks(unmasked):
            problems = [f"`{name}.{place}` is masked, but there is no current value for it" for place in places]
            hint = "send the value itself, or ${NAME} for an environment variable"
            raise ServerConfigInvalid(problems[0], problems=tuple(problems), hint=hint)
        entry = parse_entry(name, unmasked)
        self._check_program(entry, current)
        entries[name] = entry

    def _check_program(self, entry: ServerEntry, current: ServerEntry | None) -> None:
        """Refuse an entry that would start a program which the operator has not allowed. One that starts exactly what
        the current entry starts is not new."""
        if entry.command is None or entry.command in self._allowed_commands:
            return
        program = (entry.command, entry.args, entry.env, entry.cwd)
        if current is None or program != (current.command, current.args, current.env, current.cwd):
            raise ProgramNotAllowed(
                "this entry starts a program, which the API may not do",
                hint="add the command to `gateway.admin_commands`, or the entry to the configuration file",
            )

    async def delete_server(self, call: Call, args: ServerArgs) -> Json:
        """Delete a server; calls in flight may finish."""
        return await self._change(args.server, lambda entries: entries.pop(args.server))

    async def put_source(self, call: Call, args: PutSourceArgs) -> Json:
        """Create or replace the hint about a source of a server."""
        return await self._change_source(args, {**args.hint, "id": args.source})

    async def delete_source(self, call: Call, args: SourceArgs) -> Json:
        """Delete the hint about a source."""
        return await self._change_source(args, None)

    async def _change_source(self, args: SourceArgs, hint: Json | None) -> Json:
        def change(entries: Entries) -> None:
            current = _entry_as_json(entries[args.server])
            sources = [each for each in current.get("dataSources", ()) if each["id"] != args.source]
            if hint is not None:
                sources.append(hint)
            elif len(sources) == len(current.get("dataSources", ())):
                raise InvalidSource("the server has no hint about this source", hint="GET /api/admin/mcp lists them")
            entries[args.server] = parse_entry(args.server, current | {"dataSources": sources})

        return await self._change(args.server, change)

    async def _change(self, name: str, change: Callable[[Entries], object], kind: ServerKind | None = None) -> Json:
        """Change the file of this kind, or else the one with this server, if the whole configuration stays valid."""
        async with self._lock:
            directory = self._servers.config_dir
            config = await to_thread.run_sync(read_server_config, directory, self._servers.environ)
            kind = kind or _kind_of(config, name)
            entries = dict(config.entries[kind])
            change(entries)
            resolve_entries({**config.entries, kind: entries}, self._servers.environ)
            schema = {SCHEMA_KEY: config.schemas[kind]} if kind in config.schemas else {}
            content = schema | {name: _entry_as_json(entry) for name, entry in sorted(entries.items())}
            file = override_file(directory, kind)

            def write() -> None:
                file.parent.mkdir(parents=True, exist_ok=True)
                replace_file(file, orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
                # An administrator decided this, so the next start need not ask.
                with suppress(ConfigError):
                    Confirmations().add(file, sensitive_settings(content, {}, ()))

            try:
                return await self._servers.reload(write)
            except OSError as error:
                raise ServerConfigInvalid(
                    f"overrides/{file.name} cannot be written: {error.strerror}",
                    hint="give the server write permission",
                ) from error


_ADMINISTERS: Final[dict[str, Any]] = {"role": ADMINISTER}
_SUBJECT: Final[dict[str, Any]] = {"subject": ("server", "source"), **_ADMINISTERS}
# An entry may contain keys of servers.
_SECRET: Final[dict[str, Any]] = {**_SUBJECT, "secret_fields": frozenset({"entry", "hint"})}
_DELETE: Final[dict[str, Any]] = {**_SUBJECT, "destructive": True}

ADMIN_TOOLS: Final = (
    declare_tool("admin_servers", Administration.servers, title="Servers", read_only=True, **_ADMINISTERS),
    declare_tool("admin_server", Administration.server, title="A server", read_only=True, **_SUBJECT),
    declare_tool(
        "admin_schema", Administration.schema, title="Schema of the configuration files", read_only=True, **_ADMINISTERS
    ),
    declare_tool("admin_reload", Administration.reload, title="Reload the configuration files", **_ADMINISTERS),
    declare_tool("admin_put_server", Administration.put_server, title="Create or replace a server", **_SECRET),
    declare_tool("admin_delete_server", Administration.delete_server, title="Delete a server", **_DELETE),
    declare_tool("admin_check_server", Administration.check, title="Try a server", **_SECRET),
    declare_tool("admin_reconnect", Administration.reconnect, title="Reconnect a server", **_SUBJECT),
    declare_tool("admin_server_tools", Administration.tools, title="Tools of a server", read_only=True, **_SUBJECT),
    declare_tool("admin_put_source", Administration.put_source, title="Create or replace a hint", **_SECRET),
    declare_tool("admin_delete_source", Administration.delete_source, title="Delete a hint", **_DELETE),
)


_OPTIONS: Final[dict[str, Any]] = {"at_root": True, "groups": frozenset({"admin"})}
_SERVER, _SOURCE = "/admin/mcp/servers/{server}", "/admin/mcp/servers/{server}/sources/{source}"
ADMIN_ROUTES: Final = (
    declare_route("GET", "/admin/mcp", "admin_servers", "List all servers with their health", **_OPTIONS),
    declare_route("POST", "/admin/mcp/reload", "admin_reload", "Reload the configuration files", **_OPTIONS),
    declare_route("GET", "/admin/mcp/schema", "admin_schema", "The JSON schema of the files", **_OPTIONS),
    declare_route("POST", "/admin/mcp/check", "admin_check_server", "Try a server without saving it", **_OPTIONS),
    declare_route("POST", f"{_SERVER}/reconnect", "admin_reconnect", "Reconnect a server", **_OPTIONS),
    declare_route("GET", f"{_SERVER}/tools", "admin_server_tools", "List the tools of a server", **_OPTIONS),
    declare_route("GET", _SERVER, "admin_server", "Show a server", **_OPTIONS),
    declare_route("PUT", _SERVER, "admin_put_server", "Create or replace a server", whole_body="entry", **_OPTIONS),
    declare_route("DELETE", _SERVER, "admin_delete_server", "Delete a server", **_OPTIONS),
    declare_route("PUT", _SOURCE, "admin_put_source", "Create or replace a hint", whole_body="hint", **_OPTIONS),
    declare_route("DELETE", _SOURCE, "admin_delete_source", "Delete a hint", **_OPTIONS),
)
"""`/api/admin/mcp` and the paths below it, for members of the default group."""


def _describe(kind: ServerKind, name: str, entry: ServerEntry) -> Json:
    return {"name": name, "kind": kind, "entry": mask(_entry_as_json(entry))}


def _entry_as_json(entry: ServerEntry) -> Json:
    return entry.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _health_as_json(health: Mapping[str, Any]) -> Json:
    return {name: value for name, value in health.items() if value is not None and name != "pid"}


def _kind_of(config: ServerConfig, name: str) -> ServerKind:
    for kind, entries in config.entries.items():
        if name in entries:
            return kind
    raise InvalidSource("there is no such server", hint="GET /api/admin/mcp lists them")
