"""`GET /api/audit`: callers list and count their own calls, and administrators those of all callers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final, NotRequired

import anyio.to_thread
import orjson
from pydantic import Field
from typing_extensions import TypedDict

from armarium.foundation.audit import AuditFilter, AuditLog, CallRecord, Position, count_by_facet, read_page
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.routes import declare_route
from armarium.foundation.security.identity import Principal
from armarium.foundation.telemetry import timestamp
from armarium.foundation.tools import Args, Call, declare_tool

AUDIT: Final = "audit"
"""The capability of this tool in logs and in the audit log itself."""

_MAX_CALLS = 1000
_MAX_SCANNED = 20_000
_FLUSH_TIMEOUT_S = 2.0
"""How long a list waits for calls that are answered and not yet written, for instance because the file is locked."""
_MAX_VALUES_PER_FACET = 100
_CURSOR = re.compile(r"([0-9T:.Z-]{20,32})_([0-9]{1,18})")


Values = Annotated[tuple[str, ...], Field(max_length=50)]


class CallFilterArgs(Args):
    tool: Values = ()
    """Only calls of these tools."""
    capability: Values = ()
    """Only calls of these capabilities."""
    surface: Values = ()
    """Only calls over these surfaces: `http` (MCP), `stdio`, `api`, `console` or `cli`."""
    principal: Values = ()
    """Only calls of these callers."""
    root: Values = ()
    """Only calls about these roots or projects."""
    path_prefix: str | None = None
    """Only calls about paths that begin like this."""
    status: Values = ()
    """`success`, `error`, or the code of an error; repeat it for several."""
    without_reads_over: Values = ()
    """Leave out calls over these surfaces of tools that only read."""
    since: str | None = None
    """Only calls at this time or later: a date and time (ISO 8601), in UTC unless it names a zone."""
    until: str | None = None
    """Only calls before this time."""


class OwnCallsArgs(CallFilterArgs):
    limit: int = Field(default=100, ge=1, le=_MAX_CALLS)
    """Maximum number of calls."""
    cursor: str | None = None
    """Where to continue: `next` of the previous page."""


class OwnCalls(TypedDict):
    calls: list[dict[str, Any]]
    next: NotRequired[str]


class CallFacets(TypedDict):
    facets: dict[str, dict[str, int]]
    """The number of calls by tool, capability, surface, caller, root, and status."""
    calls: int
    """The number of calls that were counted."""
    complete: bool
    """Whether all calls that match were counted."""


@dataclass(frozen=True, slots=True)
class OwnCallsTools:
    """What callers learn about calls: their own, and members of the groups those of everybody."""

    audit: AuditLog
    sees_calls_of: Callable[[Principal, str | None], bool]

    async def list_calls(self, call: Call, args: OwnCallsArgs) -> OwnCalls:
        """List your own calls, newest first, with their arguments as the audit log has them: content and secrets are
        left out. Administrators get the calls of all callers. A page can have fewer calls than `limit`, or none;
        continue until there is no `next`."""
        before = None if args.cursor is None else _position(args.cursor)
        wanted = self._wanted(call, args)

        def read() -> tuple[list[tuple[int, CallRecord]], Position | None]:
            # A caller finds the calls that were answered before.
            self.audit.flush(_FLUSH_TIMEOUT_S)
            return read_page(self.audit.file, wanted, most=args.limit, scanned=_MAX_SCANNED, before=before)

        rows, last = await anyio.to_thread.run_sync(read, abandon_on_cancel=True)
        shown = [_shown(*row) for row in rows]
        return {"calls": shown, "next": f"{last[0]}_{last[1]}"} if last else {"calls": shown}

    async def count_calls(self, call: Call, args: CallFilterArgs) -> CallFacets:
        """Count the newest of your own calls by tool, capability, surface, caller, root and status. Administrators get
        those of all callers."""
        count = partial(count_by_facet, self.audit.file, self._wanted(call, args), scanned=_MAX_SCANNED)
        counted = await anyio.to_thread.run_sync(count, abandon_on_cancel=True)
        facets = {name: dict(values.most_common(_MAX_VALUES_PER_FACET)) for name, values in counted.by_facet.items()}
        return {"facets": facets, "calls": counted.calls, "complete": counted.is_complete}

    def _wanted(self, call: Call, args: CallFilterArgs) -> AuditFilter:
        conditions = args.model_dump(include=CallFilterArgs.model_fields.keys() - {"since", "until"})
        return AuditFilter(
            **{name: value for name, value in conditions.items() if value != ()},
            since=_time(args.since, "since"),
            until=_time(args.until, "until"),
            apikey_hash=None if self.sees_calls_of(call.principal, None) else call.principal.person,
        )


_TRAITS: Final[dict[str, Any]] = {"read_only": True, "idempotent": True, "for_every_caller": True}
CALL_TOOLS: Final = (
    declare_tool("list_calls", OwnCallsTools.list_calls, title="Own calls", **_TRAITS),
    declare_tool("count_calls", OwnCallsTools.count_calls, title="Own calls by facet", **_TRAITS),
)
CALL_ROUTES: Final = (
    declare_route("GET", f"/{AUDIT}", "list_calls", "List your own calls", at_root=True),
    declare_route("GET", f"/{AUDIT}/facets", "count_calls", "Count your own calls by facet", at_root=True),
)


def _shown(number: int, record: CallRecord) -> dict[str, Any]:
    return {"id": number, **record.public_fields(), "arguments": orjson.loads(record.arguments)}


def _time(text: str | None, argument: str) -> str | None:
    if text is None:
        return None
    try:
        # A plus sign in a query that is not escaped is a space.
        time = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
        return timestamp(time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        hint = "write it like 2026-01-31T08:00:00Z"
        raise InvalidArgument(f"`{argument}` is not a date and time", hint=hint, field=argument) from None


def _position(cursor: str) -> Position:
    if (match := _CURSOR.fullmatch(cursor)) is None:
        raise InvalidArgument("`cursor` is not one of this list", hint="send `next` of a page", field="cursor")
    return match[1], int(match[2])
