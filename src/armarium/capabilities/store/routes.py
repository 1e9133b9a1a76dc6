"""The store's JSON API: which method and path say which tool."""

from __future__ import annotations

from collections.abc import Iterable

from armarium.foundation.routes import Route
from armarium.foundation.tools import ToolSpec


def store_routes(tools: Iterable[ToolSpec]) -> list[Route]:
    """All nine tools, below the store's own path."""
    tool = {each.name: each for each in tools}
    at_path = frozenset({"path"})
    # PUT means the same however often it is said, which adding to the end does not.
    whole_file = {"mode": "TRUNCATE", "offset": 0}
    return [
        Route("GET", "/{project}/files", tool["file_list"], "List files and directories"),
        Route("GET", "/{project}/stat", tool["file_stat"], "Tell what is at a path"),
        Route("GET", "/{project}/file", tool["file_read"], "Read a file or a part of it"),
        Route("PUT", "/{project}/file", tool["file_write"], "Write a whole file", query=at_path, presets=whole_file),
        Route("PATCH", "/{project}/file", tool["file_write"], "Add to a file, or replace bytes of it", query=at_path),
        Route("DELETE", "/{project}/file", tool["file_delete"], "Delete a file or a directory"),
        Route("GET", "/{project}/history", tool["file_history"], "List the versions kept of a file"),
        Route("POST", "/{project}/restore", tool["file_restore"], "Bring back an earlier version of a file"),
        Route("POST", "/{project}/rename", tool["file_rename"], "Rename or move a file or a directory"),
        Route("GET", "/{project}/search", tool["file_search"], "Find chunks by meaning and by words"),
    ]
