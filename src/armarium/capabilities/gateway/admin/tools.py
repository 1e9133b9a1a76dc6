"""The tools and routes of administrators; models do not see them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, WithJsonSchema

from armarium.capabilities.gateway.admin.service import Administration
from armarium.capabilities.gateway.config.schema import server_config_schema
from armarium.foundation.routes import Route
from armarium.foundation.tools import Args, Call, NoArgs, bind_tools, declare_tool

ServerName = Annotated[str, Field(min_length=1, max_length=64)]
SourceId = Annotated[str, Field(min_length=1, max_length=512)]
Entry = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]


class ServerArgs(Args):
    """A server."""

    server: ServerName
    """Its name."""


class PutServerArgs(ServerArgs):
    """A server with its entry."""

    entry: Entry
    """The entry as in the configuration file."""
    kind: Literal["rag", "generic"] = "rag"
    """The file: `rag` for `rag-mcp.json`, `generic` for `mcp.json`."""


class SourceArgs(ServerArgs):
    """A source of a server."""

    source: SourceId
    """Its id."""


class PutSourceArgs(SourceArgs):
    """A source with its hint."""

    hint: Entry
    """The hint as in the configuration file, without its id."""


async def admin_servers(administration: Administration, call: Call, args: NoArgs) -> dict[str, Any]:
    """List all servers with their health, the configuration files in use, and problems of newer files."""
    return administration.overview()


async def admin_server(administration: Administration, call: Call, args: ServerArgs) -> dict[str, Any]:
    """Show the entry of one server; values that may be secret are masked."""
    return administration.server(args.server)


async def admin_schema(administration: Administration, call: Call, args: NoArgs) -> dict[str, Any]:
    """The JSON schema of `rag-mcp.json` and `mcp.json`."""
    return dict(server_config_schema())


async def admin_reload(administration: Administration, call: Call, args: NoArgs) -> dict[str, Any]:
    """Reload the configuration files atomically."""
    return await administration.reload()


async def admin_put_server(administration: Administration, call: Call, args: PutServerArgs) -> dict[str, Any]:
    """Create or replace a server and apply the change immediately."""
    return await administration.put_server(args.server, args.kind, args.entry)


async def admin_delete_server(administration: Administration, call: Call, args: ServerArgs) -> dict[str, Any]:
    """Delete a server; calls in flight may finish."""
    return await administration.delete_server(args.server)


async def admin_put_source(administration: Administration, call: Call, args: PutSourceArgs) -> dict[str, Any]:
    """Create or replace the hint about a source of a server."""
    return await administration.put_source(args.server, args.source, args.hint)


async def admin_delete_source(administration: Administration, call: Call, args: SourceArgs) -> dict[str, Any]:
    """Delete the hint about a source."""
    return await administration.delete_source(args.server, args.source)


_SUBJECT: Final[dict[str, Any]] = {"subject": ("server", "source")}
# An entry may contain keys of servers.
_SECRET: Final[dict[str, Any]] = {**_SUBJECT, "secret_fields": frozenset({"entry", "hint"})}

TOOLS: Final = (
    declare_tool("admin_servers", admin_servers, title="Servers", read_only=True),
    declare_tool("admin_server", admin_server, title="A server", read_only=True, **_SUBJECT),
    declare_tool("admin_schema", admin_schema, title="Schema of the configuration files", read_only=True),
    declare_tool("admin_reload", admin_reload, title="Reload the configuration files"),
    declare_tool("admin_put_server", admin_put_server, title="Create or replace a server", **_SECRET),
    declare_tool("admin_delete_server", admin_delete_server, title="Delete a server", destructive=True, **_SUBJECT),
    declare_tool("admin_put_source", admin_put_source, title="Create or replace a hint", **_SECRET),
    declare_tool("admin_delete_source", admin_delete_source, title="Delete a hint", destructive=True, **_SUBJECT),
)


def administration_routes(administration: Administration, *, admin_group: str) -> list[Route]:
    """`/api/admin/mcp` and the paths below it, for members of the group."""
    tool = {each.name: each for each in bind_tools(TOOLS, administration)}
    options: dict[str, Any] = {"at_root": True, "groups": frozenset({admin_group})}
    server, source = "/admin/mcp/servers/{server}", "/admin/mcp/servers/{server}/sources/{source}"
    return [
        Route("GET", "/admin/mcp", tool["admin_servers"], "List all servers with their health", **options),
        Route("POST", "/admin/mcp/reload", tool["admin_reload"], "Reload the configuration files", **options),
        Route("GET", "/admin/mcp/schema", tool["admin_schema"], "The JSON schema of the files", **options),
        Route("GET", server, tool["admin_server"], "Show a server", **options),
        Route("PUT", server, tool["admin_put_server"], "Create or replace a server", whole_body="entry", **options),
        Route("DELETE", server, tool["admin_delete_server"], "Delete a server", **options),
        Route("PUT", source, tool["admin_put_source"], "Create or replace a hint", whole_body="hint", **options),
        Route("DELETE", source, tool["admin_delete_source"], "Delete a hint", **options),
    ]
