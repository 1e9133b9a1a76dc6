"""Reads a server's list of tools: invalid tools are left out one by one, and notes for operators say so."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, cast

import jsonschema_rs

from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.upstreams.errors import excerpt
from armarium.capabilities.gateway.upstreams.types import UpstreamTool

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream
    from mcp.shared.message import SessionMessage

_log = logging.getLogger(__name__)

MAX_TOOLS = 2000
_MAX_NAME_LENGTH = 128
"""The longest name that many clients accept, with the name of the server before it."""
_SHOWN_NAMES = 5
_RAW = "armarium/tools"


class UncheckedListings:
    """The messages of a server. The client rejects a whole listing for one invalid tool, so tools are moved to a place
    that it does not check; `ToolListing` reads them there."""

    def __init__(self, messages: ReadStream[SessionMessage | Exception]) -> None:
        self._messages = messages

    async def receive(self) -> SessionMessage | Exception:
        return _with_unchecked_tools(await self._messages.receive())

    async def aclose(self) -> None:
        await self._messages.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return _with_unchecked_tools(await self._messages.__anext__())

    async def __aenter__(self) -> Self:
        await self._messages.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._messages.__aexit__(*error)

    def __getattr__(self, name: str) -> Any:
        # The client looks for optional attributes of a stream.
        return getattr(self._messages, name)


def _with_unchecked_tools(received: SessionMessage | Exception) -> SessionMessage | Exception:
    from mcp_types import JSONRPCResponse

    if not isinstance(received, Exception) and isinstance(received.message, JSONRPCResponse):
        result = received.message.result
        if isinstance(tools := result.get("tools"), list):
            result |= {"tools": [], "_meta": {_RAW: tools}}
    return received


class ToolListing:
    """The tools of one server, page by page."""

    def __init__(self, spec: ServerSpec) -> None:
        self._spec = spec
        self._tools: dict[str, UpstreamTool] = {}
        self._left_out: list[str] = []
        self._reasons: Counter[str] = Counter()
        self._beyond_limit = 0

    @property
    def tools(self) -> list[UpstreamTool]:
        return list(self._tools.values())

    @property
    def is_full(self) -> bool:
        return len(self._tools) >= MAX_TOOLS

    def add(self, page: Mapping[str, Any]) -> None:
        for listed in page["_meta"][_RAW]:
            if self.is_full:
                self._beyond_limit += 1
            elif isinstance(tool := self._parse(listed), UpstreamTool):
                self._tools[tool.name] = tool
            else:
                self._leave_out(listed, tool)

    def notes(self, *, has_more: bool) -> tuple[str, ...]:
        """What operators should know about the tools that are not offered; logged as well. `has_more` means that the
        server has further pages."""
        notes: list[str] = []
        if self._reasons:
            reasons = ", ".join(f"{count} because {reason}" for reason, count in self._reasons.items())
            names = ", ".join(repr(name) for name in self._left_out)
            more = "" if self._reasons.total() == len(self._left_out) else ", …"
            notes.append(f"{self._reasons.total()} tools are left out ({names}{more}): {reasons}")
        if self._beyond_limit or has_more:
            known = len(self._tools) + self._beyond_limit
            total = f"more than {known}" if has_more else str(known)
            notes.append(f"{len(self._tools)} of {total} tools are offered; a server may have {MAX_TOOLS}")
        for note in notes:
            _log.warning("a server has tools that are not offered", extra={"server": self._spec.name, "note": note})
        return tuple(notes)

    def _leave_out(self, listed: object, reason: str) -> None:
        self._reasons[reason] += 1
        if len(self._left_out) < _SHOWN_NAMES:
            name = cast("Mapping[str, Any]", listed).get("name") if isinstance(listed, dict) else None
            self._left_out.append(excerpt(name)[:_MAX_NAME_LENGTH] if isinstance(name, str) else "")

    def _parse(self, listed: object) -> UpstreamTool | str:
        """The tool, or why it is left out."""
        if not isinstance(listed, dict):
            return "it is not an object"
        tool = cast("dict[str, Any]", listed)
        if (reason := self._problem_of_name(tool.get("name"))) is not None:
            return reason
        for name, kind in (("description", str), ("title", str), ("annotations", dict)):
            if tool.get(name) is not None and not isinstance(tool[name], kind):
                return f"its `{name}` has the wrong type"
        if not self._is_schema(tool.get("inputSchema")):
            return "its input schema does not describe an object"
        if tool.get("outputSchema") is not None and not self._is_schema(tool["outputSchema"]):
            return "its output schema does not describe an object"
        return UpstreamTool(
            name=tool["name"],
            description=tool.get("description") or "",
            input_schema=tool["inputSchema"],
            output_schema=tool.get("outputSchema"),
            annotations=tool.get("annotations"),
            title=tool.get("title"),
        )

    def _problem_of_name(self, name: object) -> str | None:
        if not isinstance(name, str) or not name:
            return "it has no name"
        if not name.isprintable() or " " in name:
            return "its name contains spaces or control characters"
        if len(f"{self._spec.name}.{name}") > _MAX_NAME_LENGTH:
            return "its name is too long"
        return "another tool has the same name" if name in self._tools else None

    def _is_schema(self, schema: object) -> bool:
        if not isinstance(schema, dict):
            return False
        described = cast("dict[str, Any]", schema)
        if described.get("type") != "object":
            return False
        if self._spec.kind == "rag":
            # The gateway calls its three tools only, and does not validate their arguments.
            return True
        try:
            jsonschema_rs.validator_for(described)
        except (ValueError, jsonschema_rs.ValidationError):
            return False
        return True
