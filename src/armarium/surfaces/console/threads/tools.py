"""The calls of threads. Only routes offer them, to every caller for their own threads."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict

from armarium.foundation.errors import InvalidArgument, NotPermitted
from armarium.foundation.routes import Route
from armarium.foundation.schema import Json
from armarium.foundation.security.access import Access
from armarium.foundation.telemetry import timestamp
from armarium.foundation.tools import Args, Call, ToolSpec, local_tool
from armarium.surfaces.console.threads.store import ATTACHED, SavedMessage, Status, Thread, ThreadStore

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


class ThreadDescription(TypedDict):
    id: str
    title: str
    selection: dict[str, Any]
    created_at: str
    changed_at: str


class ThreadPage(TypedDict):
    threads: list[ThreadDescription]
    """The last changed first."""
    next: NotRequired[str]


class MessageDescription(TypedDict):
    id: int
    at: str
    question: str
    selection: dict[str, Any]
    status: Status
    """`unanswered` while it is being answered, and for good if that was cancelled."""
    tool: NotRequired[str]
    """The tool that answered."""
    answer: NotRequired[dict[str, Any]]
    """Its answer, without files. `shortened` if it was too large to be kept."""
    error: NotRequired[dict[str, Any]]
    """Its error, if the status is `failed`."""


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
        page: ThreadPage = {"threads": [_described(each) for each in found[: args.limit]]}
        if len(found) > args.limit:
            last = found[args.limit - 1]
            page["next"] = f"{last.changed_at}{_BETWEEN}{last.id}"
        return page

    async def create(self, call: Call, args: CreateThreadArgs) -> ThreadDescription:
        """Begin a thread."""
        now = _now()
        selection = args.selection.as_json() if args.selection else {}
        thread = Thread(secrets.token_hex(8), args.title or _NEW_TITLE, selection, now, now)
        await self.store.add(call.principal, thread)
        return _described(thread)

    async def show(self, call: Call, args: ThreadArgs) -> ThreadDescription:
        """Show a thread."""
        return _described(await self.store.thread(call.principal, args.thread_id))

    async def change(self, call: Call, args: ChangeThreadArgs) -> ThreadDescription:
        """Rename a thread, or change where it searches."""

        def changed(thread: Thread) -> Thread:
            selection = args.selection.as_json() if args.selection is not None else thread.selection
            return replace(thread, title=args.title or thread.title, selection=selection, changed_at=_now())

        return _described(await self.store.change(call.principal, args.thread_id, changed))

    async def delete(self, call: Call, args: ThreadArgs) -> Deleted:
        """Delete a thread with its questions and answers."""
        await self.store.delete(call.principal, args.thread_id)
        return {"deleted": True}

    async def list_messages(self, call: Call, args: MessagesArgs) -> MessagePage:
        """List the newest questions and answers of a thread, oldest first."""
        thread, found = await self.store.messages(call.principal, args.thread_id, args.before, args.limit + 1)
        shown = found[-args.limit :]
        messages = [_message(each) for each in shown]
        return {"thread": _described(thread), "messages": messages, "has_more": len(found) > len(shown)}

    async def ask(self, call: Call, args: AskInThreadArgs) -> MessageDescription:
        """Ask a question in a thread. The earlier questions of the thread are the context of the search. As a stream,
        `message` tells the id of the message, then the parts of the answer follow. A question whose answer is cancelled
        stays in the thread."""
        thread = await self.store.thread(call.principal, args.thread_id)
        selection = args.selection.as_json() if args.selection is not None else thread.selection
        tool = self._answering(call, selection)
        title = thread.title if thread.title != _NEW_TITLE else " ".join(args.question.split())[:_TITLE_CHARS]
        now = _now()
        asked = replace(thread, title=title or _NEW_TITLE, selection=selection, changed_at=now)
        message_id, earlier = await self.store.begin_message(call.principal, asked, args.question, selection, _EARLIER)
        call.emit("message", {"thread_id": thread.id, "id": message_id})
        arguments: Json = {**selection, tool.question_argument: args.question, "earlier": earlier}
        result, error = await call.run_tool(tool.name, arguments)
        content = cast(Json, result["structuredContent"])
        status: Status = "answered" if error is None else "failed"
        kept = await self.store.end_message(call.principal, message_id, status, tool.name, content)
        # They are not stored, but whoever asked sees them.
        attached = {name: content[name] for name in ATTACHED if name in content}
        return _message(SavedMessage(message_id, now, args.question, selection, status, tool.name, kept | attached))

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


def thread_tools(threads: Threads) -> list[ToolSpec]:
    """The tools, run by this service."""
    own: dict[str, Any] = {"for_every_caller": True, "subject": ("", "thread_id")}
    reads: dict[str, Any] = own | {"read_only": True, "idempotent": True}
    private: dict[str, Any] = {"content_fields": frozenset({"title"})}
    return [
        local_tool("list_threads", threads.list_threads, title="List threads", **reads),
        local_tool("create_thread", threads.create, title="Begin a thread", **own, **private),
        local_tool("show_thread", threads.show, title="Show a thread", **reads),
        local_tool("change_thread", threads.change, title="Change a thread", idempotent=True, **own, **private),
        local_tool("delete_thread", threads.delete, title="Delete a thread", idempotent=True, **own),
        local_tool("list_messages", threads.list_messages, title="List messages", **reads),
        local_tool(
            "ask_in_thread", threads.ask, title="Ask in a thread", content_fields=frozenset({"question"}), **own
        ),
    ]


def thread_routes(tools: Sequence[ToolSpec]) -> list[Route]:
    tool = {each.name: each for each in tools}
    one = "/threads/{thread_id}"
    return [
        Route("GET", "/threads", tool["list_threads"], "List your threads", at_root=True),
        Route("POST", "/threads", tool["create_thread"], "Begin a thread", success=201, at_root=True),
        Route("GET", one, tool["show_thread"], "Show a thread", at_root=True),
        Route("PATCH", one, tool["change_thread"], "Rename a thread, or change its selection", at_root=True),
        Route("DELETE", one, tool["delete_thread"], "Delete a thread", success=204, at_root=True),
        Route("GET", f"{one}/messages", tool["list_messages"], "List questions and answers", at_root=True),
        Route("POST", f"{one}/messages", tool["ask_in_thread"], "Ask", success=201, at_root=True, streams=True),
    ]


def _described(thread: Thread) -> ThreadDescription:
    return {
        "id": thread.id,
        "title": thread.title,
        "selection": thread.selection,
        "created_at": thread.created_at,
        "changed_at": thread.changed_at,
    }


def _message(saved: SavedMessage) -> MessageDescription:
    described: MessageDescription = {
        "id": saved.id,
        "at": saved.at,
        "question": saved.question,
        "selection": saved.selection,
        "status": saved.status,
    }
    if saved.tool is not None:
        described["tool"] = saved.tool
    if saved.answer is not None and saved.status == "failed":
        described["error"] = saved.answer
    elif saved.answer is not None:
        described["answer"] = saved.answer
    return described


def _now() -> str:
    return timestamp(datetime.now(UTC))
