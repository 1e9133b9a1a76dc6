"""The tools and routes of administrators; models do not see them."""

from __future__ import annotations

from typing import Any, Final

from armarium.capabilities.gateway.admin.service import Administration
from armarium.foundation.routes import Route
from armarium.foundation.tools import bind_tools, declare_tool

_SUBJECT: Final[dict[str, Any]] = {"subject": ("server", "source")}
# An entry may contain keys of servers.
_SECRET: Final[dict[str, Any]] = {**_SUBJECT, "secret_fields": frozenset({"entry", "hint"})}
_DELETE: Final[dict[str, Any]] = {**_SUBJECT, "destructive": True}

TOOLS: Final = (
    declare_tool("admin_servers", Administration.servers, title="Servers", read_only=True),
    declare_tool("admin_server", Administration.server, title="A server", read_only=True, **_SUBJECT),
    declare_tool("admin_schema", Administration.schema, title="Schema of the configuration files", read_only=True),
    declare_tool("admin_reload", Administration.reload, title="Reload the configuration files"),
    declare_tool("admin_put_server", Administration.put_server, title="Create or replace a server", **_SECRET),
    declare_tool("admin_delete_server", Administration.delete_server, title="Delete a server", **_DELETE),
    declare_tool("admin_put_source", Administration.put_source, title="Create or replace a hint", **_SECRET),
    declare_tool("admin_delete_source", Administration.delete_source, title="Delete a hint", **_DELETE),
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
