"""The gateway's JSON API: which method and path say which tool."""

from __future__ import annotations

from collections.abc import Iterable

from armarium.capabilities.gateway.contract import RAW_RESULTS, SYNTHESIZED
from armarium.foundation.routes import Route
from armarium.foundation.tools import ToolSpec


def gateway_routes(tools: Iterable[ToolSpec]) -> list[Route]:
    """The paths are the contract's, so they stand at the root of the API."""
    tool = {each.name: each for each in tools}
    connection = "/rag/connections/{server}"
    return [
        Route("GET", "/config", tool["rag_config"], "Tell the caller's servers and sources", at_root=True),
        Route("POST", "/rag/search", tool[RAW_RESULTS], "Search sources", at_root=True),
        Route("POST", "/rag/synthesize", tool[SYNTHESIZED], "Answer from sources", at_root=True),
        Route("POST", connection, tool["rag_connect"], "Keep a token for the session", success=201, at_root=True),
        Route("DELETE", connection, tool["rag_disconnect"], "Forget the token", at_root=True),
        Route("POST", "/rag/tokens", tool["rag_issue_token"], "Issue a capability token", success=201, at_root=True),
    ]
