"""The sandbox's part of the JSON API."""

from __future__ import annotations

from collections.abc import Iterable

from armarium.capabilities.sandbox.tools import TOOLS
from armarium.foundation.routes import Route
from armarium.foundation.tools import ToolSpec


def sandbox_routes(tools: Iterable[ToolSpec]) -> list[Route]:
    """The HTTP routes of these tools, below the path of the sandbox."""
    tool = {each.name: each for each in tools}
    at_path = frozenset({"path"})
    # PUT must be idempotent, and appending is not.
    whole_file, new_file = {"mode": "overwrite"}, {"mode": "create_only"}
    file = "/{root}/file"
    return [
        Route("GET", "/roots", tool["list_roots"], "List the roots"),
        Route("GET", "/{root}/folder", tool["list_folder"], "List a folder"),
        Route("POST", "/{root}/folder", tool["create_folder"], "Create a folder", query=at_path),
        Route("DELETE", "/{root}/folder", tool["remove_folder"], "Delete a folder and everything in it"),
        Route("GET", file, tool["read_file"], "Read a text file or a part of it"),
        Route("PUT", file, tool["write_file"], "Write a whole file", query=at_path, presets=whole_file),
        Route("POST", file, tool["write_file"], "Create a file", 201, query=at_path, presets=new_file),
        Route("PATCH", file, tool["patch_file"], "Apply a unified diff to a file", query=at_path),
        Route("DELETE", file, tool["remove_file"], "Delete a file"),
        Route("POST", "/{root}/files", tool["read_files"], "Read several files"),
        Route("GET", "/{root}/stat", tool["stat_file"], "Get the metadata of a path"),
        Route("GET", "/{root}/hash", tool["hash_file"], "Hash a file"),
        Route("GET", "/{root}/permissions", tool["permissions_file"], "Get owner and mode of a path"),
        Route("GET", "/{root}/glob", tool["glob"], "Find files by name"),
        Route("GET", "/{root}/grep", tool["grep"], "Search the content of files"),
        Route("POST", "/copy", tool["copy"], "Copy a file or a folder"),
        Route("POST", "/move", tool["move"], "Move or rename a file or a folder"),
    ]


def declared_routes() -> list[Route]:
    """All routes, without a service behind them."""
    return sandbox_routes(tool.spec for tool in TOOLS)
