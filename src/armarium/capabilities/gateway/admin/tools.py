"""The tools behind the administrators' routes; no model is offered them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from armarium.capabilities.gateway.admin.service import Administration
from armarium.capabilities.gateway.config.schema import registry_schema
from armarium.foundation.routes import Route
from armarium.foundation.tools import Args, Call, NoArgs, ToolSpec, local_tool

Named = Annotated[str, Field(min_length=1, max_length=64)]
SourceId = Annotated[str, Field(min_length=1, max_length=512)]
Entry = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]


class ServerArgs(Args):
    """Which server."""

    server: Named
    """Its name."""


class PutServerArgs(ServerArgs):
    """A server as a file has it."""

    entry: Entry
    """What the file is to say of it."""
    kind: Literal["rag", "generic"] = "rag"
    """In which file: `rag-mcp.json` or `mcp.json`."""


class SourceArgs(ServerArgs):
    """Which source of which server."""

    source: SourceId
    """Its id."""


class PutSourceArgs(SourceArgs):
    """A hint about a source."""

    hint: Entry
    """What the file is to say of it, without its id."""


def administration_routes(administration: Administration, *, admin_group: str) -> list[Route]:
    """`/api/admin/mcp` and what is below it, for members of the group."""
    tool = {each.name: each for each in _tools(administration)}
    place: dict[str, Any] = {"at_root": True, "groups": frozenset({admin_group})}
    server, source = "/admin/mcp/servers/{server}", "/admin/mcp/servers/{server}/sources/{source}"
    return [
        Route("GET", "/admin/mcp", tool["admin_servers"], "Tell how all servers are", **place),
        Route("POST", "/admin/mcp/reload", tool["admin_reload"], "Load the files again", **place),
        Route("GET", "/admin/mcp/schema", tool["admin_schema"], "The JSON schema of the files", **place),
        Route("GET", server, tool["admin_server"], "Show a server", **place),
        Route("PUT", server, tool["admin_put_server"], "Make or replace a server", whole_body="entry", **place),
        Route("DELETE", server, tool["admin_delete_server"], "Take a server out", **place),
        Route("PUT", source, tool["admin_put_source"], "Make or replace a hint", whole_body="hint", **place),
        Route("DELETE", source, tool["admin_delete_source"], "Take a hint out", **place),
    ]


def _tools(administration: Administration) -> list[ToolSpec]:
    async def admin_servers(call: Call, args: NoArgs) -> dict[str, Any]:
        """Tell all servers, how each is, which files count, and what is wrong with newer ones."""
        return administration.overview()

    async def admin_server(call: Call, args: ServerArgs) -> dict[str, Any]:
        """Show one server as its file has it; values that may be secret are masked."""
        return administration.server(args.server)

    async def admin_schema(call: Call, args: NoArgs) -> dict[str, Any]:
        """The JSON schema of `rag-mcp.json` and `mcp.json`."""
        return dict(registry_schema())

    async def admin_reload(call: Call, args: NoArgs) -> dict[str, Any]:
        """Take over the files as they are now, whole or not at all."""
        return await administration.reload()

    async def admin_put_server(call: Call, args: PutServerArgs) -> dict[str, Any]:
        """Make a server or replace what is said of it, and use it at once."""
        return await administration.put_server(args.server, args.kind, args.entry)

    async def admin_delete_server(call: Call, args: ServerArgs) -> dict[str, Any]:
        """Take a server out; calls under way may end."""
        return await administration.delete_server(args.server)

    async def admin_put_source(call: Call, args: PutSourceArgs) -> dict[str, Any]:
        """Make or replace the hint about a source of a server."""
        return await administration.put_source(args.server, args.source, args.hint)

    async def admin_delete_source(call: Call, args: SourceArgs) -> dict[str, Any]:
        """Take the hint about a source out."""
        return await administration.delete_source(args.server, args.source)

    about: dict[str, Any] = {"subject": ("server", "source")}
    # An entry may hold keys of servers.
    unseen = about | {"secret_fields": frozenset({"entry", "hint"})}
    return [
        local_tool("admin_servers", admin_servers, title="Servers", read_only=True),
        local_tool("admin_server", admin_server, title="A server", read_only=True, **about),
        local_tool("admin_schema", admin_schema, title="Schema of the files", read_only=True),
        local_tool("admin_reload", admin_reload, title="Load the files again"),
        local_tool("admin_put_server", admin_put_server, title="Make or replace a server", **unseen),
        local_tool("admin_delete_server", admin_delete_server, title="Take a server out", destructive=True, **about),
        local_tool("admin_put_source", admin_put_source, title="Make or replace a hint", **unseen),
        local_tool("admin_delete_source", admin_delete_source, title="Take a hint out", destructive=True, **about),
    ]
