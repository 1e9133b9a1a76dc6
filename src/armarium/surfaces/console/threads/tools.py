"""The calls of threads. Only routes offer them, to every caller for their own threads."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict

from armarium.foundation.errors import InvalidArgument, NotPermitted
from armarium.foundation.routes import declare_route
from armarium.foundation.schema import Json
from armarium.foundation.security.access import Access
from armarium.foundation.telemetry import timestamp
from armarium.foundation.tools import Args, Call, ToolSpec, declare_tool
from armarium.surfaces.console.threads.store import (
    ATTACHED,
    MessageDescription,
    Status,
    ThreadDescription,
    ThreadStore,
    outcome_field,
)

_EARLIER: Final = 20
_TITLE_CHARS: Final = 80
_NEW_TITLE: Final = "New thread"
_NEWEST: Final = ("~", "")
"""After every position."""
_BETWEEN: Final = "_"

ThreadId = Annotated[str, Field(pattern="^[a-z0-9]{16}$")]
Title = Annotated[str, Field(min_length=1, max_length=200)]
Texts = Annotated[list[Annotated[str, Field(min_length=1, max_length=600)]], Field(max_length=100)]


class ThreadSelection(Args):
    """Where to search. Sources are asked through the gateway; the other fields are filters of the corpus."""

    sources: Texts | None = None
    """Ids of sources."""
    servers: Texts | None = None
    """Servers in which ids without a server are looked up."""
    index: str | None = Field(default=None, pattern="^(auto|text|code|both)$")
    path_prefix: str | None = Field(default=None, max_length=4096)
    file_glob: str | None = Field(default=None, max_length=4096)
    doc_types: Texts | None = None

    def as_json(self) -> Json:
        """The fields that select something."""
        return {name: value for name, value in self.model_dump().items() if value}


class ListThreadsArgs(Args):
    limit: int = Field(default=50, ge=1, le=200)
    cursor: str | None = Field(default=None, max_length=100)
    """Where to continue: `next` of the previous page."""


class CreateThreadArgs(Args):
    title: Title | None = None
    """Default: the first question."""
    selection: ThreadSelection | None = None


class ThreadArgs(Args):
    thread_id: ThreadId


class ChangeThreadArgs(ThreadArgs):
    title: Title | None = None
    selection: ThreadSelection | None = None
    """Replaces the previous one."""


class MessagesArgs(ThreadArgs):
    before: int | None = Field(default=None, ge=1)
    """Only messages before the one with this id."""
    limit: int = Field(default=20, ge=1, le=100)


class AskInThreadArgs(ThreadArgs):
    question: str = Field(min_length=1, max_length=20_000)
    """The question. It may refer to the earlier ones of the thread."""
    selection: ThreadSelection | None = None
    """Where to search. It is kept with the thread; without it, the thread's own applies."""


class ThreadPage(TypedDict):
    threads: list[ThreadDescription]
    """The last changed first."""
    next: NotRequired[str]


class MessagePage(TypedDict):
    thread: ThreadDescription
    messages: list[MessageDescription]
    """Oldest first."""
    has_more: bool
    """Whether there are messages before these."""


class Deleted(TypedDict):
    deleted: bool


@dataclass(frozen=True, slots=True)
class QuestionTool:
    """A tool that answers questions, and who may use it."""

    access: Access
    tool: ToolSpec

    def takes(self, selection: Json) -> bool:
        """Whether it has an argument for each part of a selection."""
        return selection.keys() <= self.tool.input_schema.get("properties", {}).keys()


@dataclass(frozen=True, slots=True)
class Threads:
    """What callers can do with their threads."""

    store: ThreadStore
    answering: Sequence[QuestionTool]
    """The first one that fits is used."""

    async def list_threads(self, call: Call, args: ListThreadsArgs) -> ThreadPage:
        """List your threads, the last changed first."""
        position = _NEWEST
        if args.cursor is not None:
            changed_at, mark, thread_id = args.cursor.partition(_BETWEEN)
            if not mark:
                raise InvalidArgument("`cursor` is not one of this list", hint="send `next` of a page", field="cursor")
            position = changed_at, thread_id
        found = await self.store.list_threads(call.principal, position, args.limit + 1)
        page: ThreadPage = {"threads": found[: args.limit]}
        if len(found) > args.limit:
            last = found[args.limit - 1]
            page["next"] = f"{last['changed_at']}{_BETWEEN}{last['id']}"
        return page

    async def create(self, call: Call, args: CreateThreadArgs) -> ThreadDescription:
        """Begin a thread."""
        now = _now()
        selection = args.selection.as_json() if args.selection else {}
        thread: ThreadDescription = {
            "id": secrets.token_hex(8),
            "title": args.title or _NEW_TITLE,
            "selection": selection,
            "created_at": now,
            "changed_at": now,
        }
        await self.store.add(call.principal, thread)
        return thread

    async def show(self, call: Call, args: ThreadArgs) -> ThreadDescription:
        """Show a thread."""
        return await self.store.thread(call.principal, args.thread_id)

    async def change(self, call: Call, args: ChangeThreadArgs) -> ThreadDescription:
        """Rename a thread, or change where it searches."""

        def changed(thread: ThreadDescription) -> ThreadDescription:
            selection = args.selection.as_json() if args.selection is not None else thread["selection"]
            title = args.title or thread["title"]
            return {**thread, "title": title, "selection": selection, "changed_at": _now()}

        return await self.store.change(call.principal, args.thread_id, changed)

    async def delete(self, call: Call, args: ThreadArgs) -> Deleted:
        """Delete a thread with its questions and answers."""
        await self.store.delete(call.principal, args.thread_id)
        return {"deleted": True}

    async def list_messages(self, call: Call, args: MessagesArgs) -> MessagePage:
        """List the newest questions and answers of a thread, oldest first."""
        thread, found = await self.store.messages(call.principal, args.thread_id, args.before, args.limit + 1)
        shown = found[-args.limit :]
        return {"thread": thread, "messages": shown, "has_more": len(found) > len(shown)}

    async def ask(self, call: Call, args: AskInThreadArgs) -> MessageDescription:
        """Ask a question in a thread. The earlier questions of the thread are the context of the search. As a stream,
        `message` tells the id of the message, then the parts of the answer follow. A question whose answer is cancelled
        stays in the thread."""
        thread = await self.store.thread(call.principal, args.thread_id)
        selection = args.selection.as_json() if args.selection is not None else thread["selection"]
        tool = self._answering(call, selection)
        title = thread["title"] if thread["title"] != _NEW_TITLE else " ".join(args.question.split())[:_TITLE_CHARS]
        now = _now()
        asked: ThreadDescription = {
            **thread,
            "title": title or _NEW_TITLE,
            "selection": selection,
            "changed_at": now,
        }
        message_id, earlier = await self.store.begin_message(call.principal, asked, args.question, selection, _EARLIER)
        call.emit("message", {"thread_id": thread["id"], "id": message_id})
        arguments: Json = {**selection, tool.question_argument: args.question, "earlier": earlier}
        result, error = await call.run_tool(tool.name, arguments)
        content = cast(Json, result["structuredContent"])
        status: Status = "answered" if error is None else "failed"
        kept = await self.store.end_message(call.principal, message_id, status, tool.name, content)
        # They are not stored, but whoever asked sees them.
        attached = {name: content[name] for name in ATTACHED if name in content}
        message: MessageDescription = {
            "id": message_id,
            "at": now,
            "question": args.question,
            "selection": selection,
            "status": status,
            "tool": tool.name,
        }
        message[outcome_field(status)] = kept | attached
        return message

    def _answering(self, call: Call, selection: Json) -> ToolSpec:
        permitted = [each for each in self.answering if each.access.permits(call.principal, each.tool)]
        if not permitted:
            raise NotPermitted("nothing here answers your questions", hint="ask the operator for access to a corpus")
        for each in permitted:
            if each.takes(selection):
                return each.tool
        fields = ", ".join(sorted(selection))
        raise InvalidArgument(
            f"nothing that you may ask takes {fields} together",
            hint="sources are asked without the filters of the corpus",
            field="selection",
        )


_OWN: Final[dict[str, Any]] = {"for_every_caller": True, "subject": ("", "thread_id")}
_READS: Final = _OWN | {"read_only": True, "idempotent": True}
_PRIVATE: Final = _OWN | {"content_fields": frozenset({"title", "question"})}
TOOLS: Final = (
    declare_tool("list_threads", Threads.list_threads, title="List threads", **_READS),
    declare_tool("create_thread", Threads.create, title="Begin a thread", **_PRIVATE),
    declare_tool("show_thread", Threads.show, title="Show a thread", **_READS),
    declare_tool("change_thread", Threads.change, title="Change a thread", idempotent=True, **_PRIVATE),
    declare_tool("delete_thread", Threads.delete, title="Delete a thread", idempotent=True, **_OWN),
    declare_tool("list_messages", Threads.list_messages, title="List messages", **_READS),
    declare_tool("ask_in_thread", Threads.ask, title="Ask in a thread", **_PRIVATE),
)
_THREAD: Final = "/threads/{thread_id}"
ROUTES: Final = (
    declare_route("GET", "/threads", "list_threads", "List your threads", at_root=True),
    declare_route("POST", "/threads", "create_thread", "Begin a thread", success=201, at_root=True),
    declare_route("GET", _THREAD, "show_thread", "Show a thread", at_root=True),
    declare_route("PATCH", _THREAD, "change_thread", "Rename a thread, or change its selection", at_root=True),
    declare_route("DELETE", _THREAD, "delete_thread", "Delete a thread", success=204, at_root=True),
    declare_route("GET", f"{_THREAD}/messages", "list_messages", "List questions and answers", at_root=True),
    declare_route("POST", f"{_THREAD}/messages", "ask_in_thread", "Ask", success=201, at_root=True, streams=True),
)


def _now() -> str:
    return timestamp(datetime.now(UTC))
