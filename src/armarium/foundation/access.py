"""Decides what a caller may do. The dispatcher asks it for every call, and lists only what it permits."""

from __future__ import annotations

from armarium.foundation.errors import NotPermitted
from armarium.foundation.identity import Principal
from armarium.foundation.tools import ToolSpec


def may_call(principal: Principal, capability: str, tool: ToolSpec) -> bool:
    """Whether the caller's key permits this tool."""
    if tool.runs_tools:
        # It does nothing itself. Each tool that it runs is checked.
        return True
    if principal.capabilities is not None and capability not in principal.capabilities:
        return False
    return tool.read_only or not principal.read_only


def require_permission(principal: Principal, capability: str, tool: ToolSpec) -> None:
    """Raise `NotPermitted` unless the caller's key permits this tool."""
    if not may_call(principal, capability, tool):
        what = "change anything" if principal.read_only and not tool.read_only else f"use the {capability}"
        raise NotPermitted(
            f"the key {principal.username} may not {what}", hint="ask the operator for a key that may", tool=tool.name
        )
