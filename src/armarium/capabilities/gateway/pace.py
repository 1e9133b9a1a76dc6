"""How often one caller may use the gateway's tools, whichever of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from armarium.capabilities.gateway.refusals import TooManyCalls
from armarium.foundation.rate_limit import RateLimit
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call, Relayed, ToolSpec


def pace_of(rate_per_minute: int | None) -> RateLimit | None:
    """As many calls a minute, all of them at once if need be; None: as many as come."""
    return None if rate_per_minute is None else RateLimit(rate_per_minute / 60, rate_per_minute, TooManyCalls)


def paced(tool: ToolSpec, pace: RateLimit | None) -> ToolSpec:
    """The tool, which refuses whoever calls more often than that."""
    if pace is None:
        return tool

    async def run(call: Call, values: Mapping[str, Any]) -> Json | Relayed:
        pace.take(call.principal.username)
        return await tool.run(call, values)

    return replace(tool, run=run)
