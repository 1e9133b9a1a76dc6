"""A small capability with a JSON API: notes, and calls that fail or wait on demand."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NotRequired

import anyio
import httpx
from pydantic import Field
from typing_extensions import TypedDict

from armarium.capability import Capability, ServerIdentity
from armarium.foundation.audit import AuditLog
from armarium.foundation.errors import ArmariumError, DeadlineExceeded, Internal
from armarium.foundation.events import Events
from armarium.foundation.routes import Route
from armarium.foundation.security.identity import Authenticator, Principal, key_hash
from armarium.foundation.settings.model import SessionSettings
from armarium.foundation.sockets import listen
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import Args, Call, ToolSpec, local_tool
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import Gate
from armarium.surfaces.mcp.app import McpApp
from armarium.surfaces.mcp.http_server import serve_http
from armarium.surfaces.mcp.server import mcp_server
from armarium.surfaces.mcp.sessions import Sessions
from armarium.surfaces.web.app import JsonApi
from armarium.surfaces.web.events import StreamLimits

KEY = "carol-key-77f0"
STAFF_KEY = "dave-key-90c2"
CAROL = Principal("carol", (), key_hash(KEY))
DAVE = Principal("dave", ("staff",), key_hash(STAFF_KEY))
BASE = "http://127.0.0.1"


class NoteMissing(ArmariumError):
    """No note has this number."""

    code, http_status = "NOTE_MISSING", 404


class NoteTaken(ArmariumError):
    """The title is taken."""

    code, http_status = "NOTE_TAKEN", 409


class Hurried(ArmariumError):
    """The caller exceeds a rate limit."""

    code, retryable, http_status = "HURRIED", True, 429


class Forbidden(ArmariumError):
    """A denial."""

    code, security = "FORBIDDEN", True


class Busy(ArmariumError):
    """A moment later it works."""

    code, retryable = "BUSY", True


class Broken(ArmariumError):
    """An error that the caller cannot fix."""

    code = "BROKEN"


FAILURES: dict[str, ArmariumError] = {
    "missing": NoteMissing("no such note"),
    "taken": NoteTaken("there is one"),
    "hurried": Hurried("too many calls", retry_after_ms=1200),
    "forbidden": Forbidden("not yours"),
    "busy": Busy("later"),
    "broken": Broken("no idea"),
    "internal": Internal("ours"),
    "late": DeadlineExceeded("too slow"),
}


class Find(Args):
    """Which notes."""

    limit: int = Field(default=10, ge=1, le=100)
    """Most notes."""
    weight: float = 1.0
    newest: bool = False
    tags: list[str] = Field(default_factory=list)
    numbers: list[int] = Field(default_factory=list)
    kind: Literal["short", "long"] = "short"
    note: str | None = None


class OneNote(Args):
    """Which note."""

    number: int


class NewNote(Args):
    """What to keep."""

    title: str = Field(min_length=1, max_length=40)
    text: str = ""


class WrittenNote(OneNote, NewNote):
    """What to keep where."""

    mode: Literal["add", "replace"] = "add"


class ReportArgs(Args):
    """Anything, from somebody."""

    source: str
    report: Any


class MomentArgs(Args):
    """Which moment to wait for."""

    moment: str


class FailArgs(Args):
    """How to fail."""

    how: str


class Rule(Args):
    """Which rule."""

    rule: str


class Nothing(Args):
    """No argument at all."""


class Note(TypedDict):
    number: int
    title: str
    text: NotRequired[str]


class Notes(TypedDict):
    asked: dict[str, Any]
    notes: list[Note]


class Counted(TypedDict):
    count: int


class Said(TypedDict):
    text: str


@dataclass
class Moments:
    """Named events that tools wait for and tests observe."""

    known: dict[str, anyio.Event] = field(default_factory=dict)

    def __getitem__(self, moment: str) -> anyio.Event:
        return self.known.setdefault(moment, anyio.Event())

    async def happens(self, moment: str) -> None:
        """Wait for the moment, with a deadline."""
        with anyio.fail_after(10):
            await self[moment].wait()


def demo_capability(moments: Moments, also_at_root: tuple[str, ...] = ()) -> Capability:
    """Notes in memory."""
    kept: dict[int, Note] = {}

    def known(number: int) -> Note:
        if number not in kept:
            raise NoteMissing("no such note", number=number)
        return kept[number]

    async def find_notes(call: Call, args: Find) -> Notes:
        """Find notes."""
        return {"asked": args.model_dump(exclude_unset=True), "notes": list(kept.values())[: args.limit]}

    async def read_note(call: Call, args: OneNote) -> Note:
        """Read a note."""
        return known(args.number)

    async def make_note(call: Call, args: NewNote) -> Note:
        """Keep a new note."""
        if any(note["title"] == args.title for note in kept.values()):
            raise NoteTaken("there is a note of that title")
        number = len(kept) + 1
        kept[number] = {"number": number, "title": args.title, "text": args.text}
        return kept[number]

    async def write_note(call: Call, args: WrittenNote) -> Note:
        """Change a note, or keep it under a number."""
        before = kept.get(args.number, {}).get("text", "") if args.mode == "add" else ""
        kept[args.number] = {"number": args.number, "title": args.title, "text": before + args.text}
        return kept[args.number]

    async def drop_note(call: Call, args: OneNote) -> Counted:
        """Forget a note."""
        del kept[known(args.number)["number"]]
        return {"count": 1}

    async def take_report(call: Call, args: ReportArgs) -> Said:
        """Take whatever somebody reports."""
        return {"text": f"{args.source}: {type(args.report).__name__}"}

    async def look_until(call: Call, args: MomentArgs) -> Said:
        """Look until the moment comes."""
        return await wait(args.moment)

    async def change_until(call: Call, args: MomentArgs) -> Said:
        """Change something until the moment comes."""
        return await wait(args.moment)

    async def wait(moment: str) -> Said:
        moments[f"{moment} awaited"].set()
        try:
            await moments[moment].wait()
        except BaseException:
            moments[f"{moment} abandoned"].set()
            raise
        moments[f"{moment} done"].set()
        return {"text": moment}

    async def fail(call: Call, args: FailArgs) -> Said:
        """Fail as it is told."""
        raise FAILURES.get(args.how, RuntimeError("password hunter2"))

    async def half(call: Call, args: Nothing) -> Said:
        """Answer what JSON can hardly carry."""
        return {"text": "half \ud800"}

    async def count_notes(call: Call, args: Nothing) -> Counted:
        """Count the notes of everybody."""
        return {"count": len(kept)}

    async def keep_rule(call: Call, args: Rule) -> Said:
        """Keep a rule for everybody."""
        return {"text": args.rule}

    tools = {
        tool.name: tool
        for tool in [
            local_tool("find_notes", find_notes, read_only=True),
            local_tool("read_note", read_note, read_only=True, subject=("root", "number")),
            local_tool("make_note", make_note, content_fields=frozenset({"text"})),
            local_tool("write_note", write_note, content_fields=frozenset({"text"})),
            local_tool("drop_note", drop_note),
            local_tool("take_report", take_report, content_fields=frozenset({"report"})),
            local_tool("look_until", look_until, read_only=True),
            local_tool("change_until", change_until),
            local_tool("fail", fail),
            local_tool("count_notes", count_notes, read_only=True),
            local_tool("keep_rule", keep_rule),
            local_tool("half", half, text=lambda answer: ["half"]),
        ]
    }
    replace: dict[str, Any] = {"mode": "replace"}
    routes = [
        Route("GET", "/notes", tools["find_notes"], "Find notes"),
        Route("POST", "/notes", tools["make_note"], "Keep a note", success=201),
        Route("GET", "/notes/{number}", tools["read_note"], "Read a note"),
        Route(
            "PUT", "/notes/{number}", tools["write_note"], "Write a note", query=frozenset({"title"}), presets=replace
        ),
        Route("PATCH", "/notes/{number}", tools["write_note"], "Change a note"),
        Route("DELETE", "/notes/{number}", tools["drop_note"], "Forget a note", success=204),
        Route("POST", "/reports", tools["take_report"], "Take a report", whole_body="report"),
        Route("GET", "/looking/{moment}", tools["look_until"], "Look until a moment"),
        Route("POST", "/changing/{moment}", tools["change_until"], "Change until a moment"),
        Route("POST", "/failures", tools["fail"], "Fail"),
        Route("GET", "/half", tools["half"], "Answer badly"),
        Route("GET", "/overview", tools["count_notes"], "Count notes", at_root=True),
        Route(
            "PUT", "/admin/rules/{rule}", tools["keep_rule"], "Keep a rule", at_root=True, groups=frozenset({"staff"})
        ),
    ]
    routes += [Route("GET", path, tools["count_notes"], "Count notes", at_root=True) for path in also_at_root]
    offered: list[ToolSpec] = [tools["find_notes"], tools["make_note"]]
    return Capability("demo", offered, "Keep notes.", routes)


@dataclass(frozen=True)
class Demo:
    """A server with that capability, and its parts."""

    app: McpApp
    moments: Moments
    metrics: Metrics
    capability: Capability
    events: Events


def demo(
    *,
    audit: AuditLog | None = None,
    allowed_origins: tuple[str, ...] = (),
    max_body_bytes: int = 10_000,
    deadline_s: float | None = 60,
    stream_limits: StreamLimits | None = None,
    also_at_root: tuple[str, ...] = (),
    authenticator: Authenticator | None = None,
) -> Demo:
    """Assemble a server, as the assembly does."""
    moments, metrics, events = Moments(), Metrics(), Events()
    capability = demo_capability(moments, also_at_root)
    dispatcher = Dispatcher(
        [(capability.name, tool) for tool in capability.every_tool],
        metrics=metrics,
        audit=audit,
        default_deadline_s=deadline_s,
        check_answers=True,
    )
    gate = Gate(
        authenticator or Authenticator((CAROL, DAVE)),
        allowed_origins=allowed_origins,
        loopback_only=True,
        max_body_bytes=max_body_bytes,
        metrics=metrics,
    )
    sessions = Sessions(SessionSettings(max_sessions=10), metrics)
    server = mcp_server(ServerIdentity("armarium", ""), dispatcher, capability.tools)
    api = JsonApi([(capability.name, capability.routes)], dispatcher, gate, events, stream_limits=stream_limits)
    app = McpApp({"/mcp": server}, gate, sessions, metrics, beside=api)
    return Demo(app, moments, metrics, capability, events)


@asynccontextmanager
async def caller_of(app: McpApp, key: str | None = KEY) -> AsyncGenerator[httpx.AsyncClient]:
    """An HTTP client of the application, without a socket."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    transport = httpx.ASGITransport(app.asgi)
    async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers, timeout=20) as client:
        yield client


@asynccontextmanager
async def served(app: McpApp) -> AsyncGenerator[str]:
    """Serve the application as the product does, on a free port; yields its address."""
    listening, ready = listen("127.0.0.1", 0), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(serve_http, app, listening, grace_s=1, on_ready=ready.set))
        with anyio.fail_after(10):
            await ready.wait()
        yield f"{BASE}:{listening.getsockname()[1]}"
        tasks.cancel_scope.cancel()
