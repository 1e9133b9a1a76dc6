"""Stores the threads of each person in a SQLite file of their own, so that no statement can reach another person's."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NotRequired, TypeVar, cast

import orjson
from anyio.to_thread import run_sync
from typing_extensions import TypedDict

from armarium.foundation import sqlite
from armarium.foundation.errors import ArmariumError
from armarium.foundation.schema import Json
from armarium.foundation.security.identity import Principal
from armarium.foundation.sql import queries

MAX_THREADS: Final = 1000
MAX_MESSAGES: Final = 500
"""In one thread."""
MAX_FILE_BYTES: Final = 256 * 1024 * 1024
"""Of all threads of a person."""
ATTACHED: Final = ("artifacts", "display")
"""The parts of an answer with the files of servers. They are not stored."""
_MAX_ANSWER_BYTES: Final = 512 * 1024
_BUSY_TIMEOUT_S: Final = 5.0
_LAST_ID: Final = 2**63 - 1
_SQL: Final = queries(__package__ or "")
_SCHEMA: Final = ("create_threads", "create_threads_by_change", "create_messages", "create_messages_by_thread")

Status = Literal["unanswered", "answered", "failed"]
Position = tuple[str, str]
"""The time of the last change of a thread, and its id."""
T = TypeVar("T")


class ThreadNotFound(ArmariumError):
    """The caller has no thread of this id."""

    code, http_status = "THREAD_NOT_FOUND", 404


class ThreadsFull(ArmariumError):
    """The caller has the largest number of threads or messages, or as much text as is kept for one person."""

    code, http_status = "THREADS_FULL", 409


class ThreadsUnavailable(ArmariumError):
    """The threads cannot be read or written. Retry later."""

    code, retryable = "THREADS_UNAVAILABLE", True


class ThreadDescription(TypedDict):
    id: str
    title: str
    selection: dict[str, Any]
    created_at: str
    changed_at: str


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


class ThreadStore:
    """The threads of everybody, by person."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def list_threads(self, person: Principal, before: Position, limit: int) -> list[ThreadDescription]:
        """The threads that changed before a position, the last changed first."""
        rows = await self._run(person, lambda db: db.execute(_SQL["list_threads"], (*before, limit)).fetchall())
        return [_thread(row) for row in rows]

    async def thread(self, person: Principal, thread_id: str) -> ThreadDescription:
        """One thread. Raises `ThreadNotFound`."""
        return await self._run(person, partial(_find, thread_id=thread_id))

    async def add(self, person: Principal, thread: ThreadDescription) -> None:
        """Store a new thread. Raises `ThreadsFull`."""

        def insert(db: sqlite3.Connection) -> None:
            _require_room(db, "count_threads", (), MAX_THREADS, "threads")
            _put(db, thread)

        await self._run(person, insert)

    async def change(
        self, person: Principal, thread_id: str, change: Callable[[ThreadDescription], ThreadDescription]
    ) -> ThreadDescription:
        """Change a thread. Raises `ThreadNotFound`."""

        def update(db: sqlite3.Connection) -> ThreadDescription:
            changed = change(_find(db, thread_id))
            _put(db, changed)
            return changed

        return await self._run(person, update)

    async def delete(self, person: Principal, thread_id: str) -> None:
        """Delete a thread with its messages. Raises `ThreadNotFound`."""

        def delete(db: sqlite3.Connection) -> None:
            _find(db, thread_id)
            db.execute(_SQL["delete_messages"], (thread_id,))
            db.execute(_SQL["delete_thread"], (thread_id,))

        await self._run(person, delete)

    async def messages(
        self, person: Principal, thread_id: str, before: int | None, limit: int
    ) -> tuple[ThreadDescription, list[MessageDescription]]:
        """A thread and its newest messages before one, oldest first. Raises `ThreadNotFound`."""

        def select(db: sqlite3.Connection) -> tuple[ThreadDescription, list[Any]]:
            parameters = (thread_id, _LAST_ID if before is None else before, limit)
            return _find(db, thread_id), db.execute(_SQL["list_messages"], parameters).fetchall()

        thread, rows = await self._run(person, select)
        return thread, [_message(row) for row in reversed(rows)]

    async def begin_message(
        self, person: Principal, thread: ThreadDescription, question: str, selection: Json, earlier: int
    ) -> tuple[int, list[str]]:
        """Store a question and the thread as it is changed by it. Returns the id of the message and the questions
        before, oldest first. Raises `ThreadNotFound` or `ThreadsFull`."""

        def insert(db: sqlite3.Connection) -> tuple[int, list[str]]:
            _find(db, thread["id"])
            _require_room(db, "count_messages", (thread["id"],), MAX_MESSAGES, "messages")
            questions = db.execute(_SQL["earlier_questions"], (thread["id"], earlier)).fetchall()
            row = (thread["id"], thread["changed_at"], question, _as_text(selection))
            ((message_id,),) = db.execute(_SQL["add_message"], row).fetchall()
            _put(db, thread)
            return message_id, [text for (text,) in reversed(questions)]

        return await self._run(person, insert)

    async def end_message(self, person: Principal, message_id: int, status: Status, tool: str, answer: Json) -> Json:
        """Store the answer or the error of a message, without what is too large. Returns what is stored."""
        kept, text = _shortened(answer)
        parameters = (status, tool, text, message_id)
        await self._run(person, lambda db: db.execute(_SQL["answer_message"], parameters).rowcount)
        return kept

    async def _run(self, person: Principal, statements: Callable[[sqlite3.Connection], T]) -> T:
        return await run_sync(self._run_in_thread, person, statements)

    def _run_in_thread(self, person: Principal, statements: Callable[[sqlite3.Connection], T]) -> T:
        # Opened for each call: people come and go, and a connection costs a millisecond.
        digest = hashlib.sha256(f"threads {person.person}".encode()).hexdigest()
        file = self._directory / f"{digest[:32]}.sqlite"
        with (
            sqlite.unavailable(ThreadsUnavailable, "the threads cannot be read or written", hint="try again later"),
            closing(sqlite.connect_private(file, busy_timeout_s=_BUSY_TIMEOUT_S)) as connection,
        ):
            # What a person deletes must not stay behind in pages that are free.
            connection.execute("PRAGMA secure_delete = ON")
            with sqlite.transaction(connection):
                if sqlite.is_empty(connection):
                    for name in _SCHEMA:
                        connection.execute(_SQL[name])
                return statements(connection)


def _find(db: sqlite3.Connection, thread_id: str) -> ThreadDescription:
    row = db.execute(_SQL["thread"], (thread_id,)).fetchone()
    if row is None:
        raise ThreadNotFound("there is no such thread", hint="GET /api/threads lists yours")
    return _thread(row)


def _put(db: sqlite3.Connection, thread: ThreadDescription) -> None:
    row = (thread["id"], thread["title"], _as_text(thread["selection"]), thread["created_at"], thread["changed_at"])
    db.execute(_SQL["put_thread"], row)


def _require_room(db: sqlite3.Connection, count: str, parameters: tuple[str, ...], most: int, what: str) -> None:
    ((number,),) = db.execute(_SQL[count], parameters).fetchall()
    ((pages,), (page_bytes,), (free,)) = (
        db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size", "freelist_count")
    )
    if number >= most:
        raise ThreadsFull(f"there are {most} {what} already", hint="delete a thread, or begin a new one")
    if (pages - free) * page_bytes >= MAX_FILE_BYTES:
        raise ThreadsFull("your threads take as much space as they may", hint="delete a thread")


def _thread(row: tuple[str, str, str, str, str]) -> ThreadDescription:
    thread_id, title, selection, created_at, changed_at = row
    return {
        "id": thread_id,
        "title": title,
        "selection": orjson.loads(selection),
        "created_at": created_at,
        "changed_at": changed_at,
    }


def _message(row: tuple[Any, ...]) -> MessageDescription:
    message_id, at, question, selection, status, tool, answer = row
    message: MessageDescription = {
        "id": message_id,
        "at": at,
        "question": question,
        "selection": orjson.loads(selection),
        "status": status,
    }
    if tool is not None:
        message["tool"] = tool
    if answer is not None:
        message[outcome_field(status)] = orjson.loads(answer)
    return message


def outcome_field(status: Status) -> Literal["answer", "error"]:
    """The field of a message with what the tool returned."""
    return "error" if status == "failed" else "answer"


def _shortened(answer: Json) -> tuple[Json, str]:
    """The answer as it is stored: without files and the whole text of hits, and without hits if it is still too
    large."""
    kept = {name: value for name, value in answer.items() if name not in ATTACHED}
    if files := answer.get("artifacts"):
        kept["files_left_out"] = len(files)
    for holder in (kept, kept.get("results")):
        if isinstance(holder, dict) and isinstance(hits := cast(Json, holder).get("hits"), list):
            cast(Json, holder)["hits"] = [_without_chunk(each) for each in cast("list[Json]", hits)]
    text = _as_text(kept)
    if len(text.encode()) <= _MAX_ANSWER_BYTES:
        return kept, text
    results: Json = kept.get("results", kept)
    small: Json = {"answer": str(results.get("answer", ""))[: _MAX_ANSWER_BYTES // 8], "hits": [], "shortened": True}
    kept = {"results": small} if "results" in kept else small
    return kept, _as_text(kept)


def _without_chunk(hit: Json) -> Json:
    return {name: value for name, value in hit.items() if name != "chunk" or "snippet" not in hit}


def _as_text(value: Json) -> str:
    return orjson.dumps(value).decode()
