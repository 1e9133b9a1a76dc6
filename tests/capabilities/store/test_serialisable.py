"""Whatever many callers do to a project at once, the order of its revisions explains every answer and the outcome."""

from __future__ import annotations

import asyncio
import random
import time
from bisect import bisect_right
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from armarium.capabilities.store.database.pool import Connection, Row, connect
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.model import Scope
from support.store_calls import Files
from support.store_model import MAX_FILE, PATHS, Model, Refused, answer_or_refusal

LIMITS = {"max_file_bytes": MAX_FILE, "history": {"versions": 3}}
PROJECTS = ["p", "q"]
NOWHERE = -1

revision_seen: ContextVar[int] = ContextVar("revision_seen", default=NOWHERE)


class WitnessedDatabase(StoreDatabase):
    """A database that notes at which revision of its project each change was made, or refused."""

    @asynccontextmanager
    async def project_transaction(self, scope: Scope) -> AsyncGenerator[Connection]:
        async with super().project_transaction(scope) as connection:
            try:
                yield connection
            finally:
                revision_seen.set(
                    await connection.fetchval("SELECT revision_now($1, $2)", scope.apikey_hash, scope.project)
                )

    async def fetchrow_locked(self, scope: Scope, statement: str, *arguments: Any) -> Row:
        # Behind the change and under its lock, in the same statement.
        witnessed = (
            f"SELECT changed.*, witness.revision FROM ({statement.rstrip(';')}) AS changed, "
            "LATERAL (SELECT revision_now($1, $2) AS revision WHERE changed.waited_s >= 0) AS witness"
        )
        row = await super().fetchrow_locked(scope, witnessed, *arguments)
        revision_seen.set(row["revision"])
        return row


# It may change, as far as PostgreSQL knows, so it sees what is committed when it is called.
REVISION_NOW = """
CREATE OR REPLACE FUNCTION revision_now(tenant TEXT, of_project TEXT) RETURNS BIGINT LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN coalesce(
        (SELECT revision FROM mcp_file_projects WHERE apikey_hash = tenant AND project = of_project), 0
    );
END $$
"""


@dataclass(frozen=True, slots=True)
class Event:
    """A call and its answer. Times are of one clock."""

    project: str
    tool: str
    arguments: dict[str, Any]
    answer: dict[str, Any]
    began: float
    ended: float
    revision: int
    """Of the project behind the change; for a refusal the one it was decided on."""

    @property
    def code(self) -> str | None:
        return self.answer.get("code")


class VersionedModel(Model):
    """The plain model, in which files have versions as well."""

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[str, int] = {}
        self.revision = 0

    def replay(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """What a change answers."""
        return getattr(self, f"_{tool}")(**arguments)

    def _write(self, path: str, content: str, mode: str, offset: int = 0, if_version: int | None = None) -> Any:
        if if_version is not None and not self.below(path) and not self.lies_below_file(path):
            self._expect(path, if_version)
        written = self.write(path, content.encode(), mode, offset)
        self._gave(path)
        return {"bytes_written": written, "version": self.revision, "size": len(self.files[path])}

    def _delete(self, path: str, recursive: bool, if_version: int | None = None) -> Any:
        if if_version is not None and path in self.files:
            self._expect(path, if_version)
        elif if_version is not None and self.below(path):
            raise Refused("IS_DIRECTORY")
        deleted = self.delete(path, recursive)
        self.revision += 1
        self._forget_versions()
        return {"deleted_count": deleted}

    def _rename(self, from_path: str, to_path: str, overwrite: bool) -> Any:
        replaces = to_path in self.files
        moving = [from_path] if from_path in self.files else self.below(from_path)
        moved = self.rename(from_path, to_path, overwrite)
        self.revision += replaces
        self._forget_versions()
        for path in moving:
            self._gave(to_path + path.removeprefix(from_path))
        return {"moved_count": moved}

    def _expect(self, path: str, version: int) -> None:
        if self.versions.get(path) != version:
            raise Refused("CONFLICT")

    def _gave(self, path: str) -> None:
        self.revision += 1
        self.versions[path] = self.revision

    def _forget_versions(self) -> None:
        self.versions = {path: version for path, version in self.versions.items() if path in self.files}


class Caller:
    """Does one thing after another, chosen by chance, and notes what came of it."""

    def __init__(self, files: Files, seed: int) -> None:
        self._files = files
        self._chance = random.Random(seed)
        self._versions: dict[tuple[str, str], int] = {}
        self.events: list[Event] = []

    async def work(self, calls: int) -> None:
        for _ in range(calls):
            await self._call(self._chance.choice(PROJECTS), *self._choose())

    def _choose(self) -> tuple[str, dict[str, Any]]:
        chance, path = self._chance, self._chance.choice(PATHS)
        # Never nothing: what adds nothing is no change, and has no revision of its own.
        content = "".join(chance.choices("xyä€", k=chance.randint(1, 6)))
        match chance.randrange(10):
            case 0 | 1 | 2:
                return "write", {"path": path, "content": content, "mode": "APPEND"}
            case 3:
                return "write", {"path": path, "content": content, "mode": "TRUNCATE"}
            case 4:
                return "write", {"path": path, "content": "z", "mode": "OVERWRITE", "offset": chance.randint(0, 4)}
            case 5 | 6:
                # What is moved to where it is already is no change, and nothing is looked at.
                other = chance.choice([each for each in PATHS if each != path])
                return "rename", {"from_path": path, "to_path": other, "overwrite": chance.random() < 0.7}
            case 7:
                return "delete", {"path": path, "recursive": chance.random() < 0.7}
            case _:
                return "read", {"path": path}

    async def _call(self, project: str, tool: str, arguments: dict[str, Any]) -> None:
        known = self._versions.get((project, arguments.get("path", "")))
        if known is not None and tool in ("write", "delete") and self._chance.random() < 0.4:
            arguments["if_version"] = known
        revision_seen.set(NOWHERE)
        began = time.perf_counter()
        result = await self._files.result(tool, project=project, **arguments)
        ended = time.perf_counter()
        answer = result["structuredContent"]
        if "version" in answer:
            self._versions[project, arguments["path"]] = answer["version"]
        self.events.append(Event(project, tool, arguments, answer, began, ended, revision_seen.get()))


@dataclass(frozen=True, slots=True)
class Replayed:
    """A project's states, one behind the other."""

    revisions: list[int]
    states: list[dict[str, tuple[bytes, int]]]

    def at(self, revision: int) -> dict[str, tuple[bytes, int]]:
        """The files with their versions at a revision."""
        return self.states[bisect_right(self.revisions, revision) - 1]

    def between(self, first: int, last: int) -> list[dict[str, tuple[bytes, int]]]:
        """The states that a look in this time may have seen."""
        return self.states[bisect_right(self.revisions, first) - 1 : bisect_right(self.revisions, last)]


def replayed(changes: list[Event]) -> Replayed:
    """Do all changes again, one after another in the order of revisions: each must end as it did."""
    model = VersionedModel()
    history = Replayed([0], [{}])
    # What was refused was decided on the state that its revision left.
    for event in sorted(changes, key=lambda event: (event.revision, event.code is not None)):
        where = f"{event.tool} {event.arguments} at {event.revision}"
        expected = answer_or_refusal(partial(model.replay, event.tool, event.arguments))
        assert event.revision == model.revision, where
        if isinstance(expected, Refused):
            assert event.code == str(expected), where
            continue
        assert event.answer == expected, where
        history.revisions.append(model.revision)
        history.states.append({path: (content, model.versions[path]) for path, content in model.files.items()})
    return history


def require_time_to_agree(changes: list[Event]) -> None:
    """What ended before another began does not come after it."""
    by_end = sorted(changes, key=lambda event: event.ended)
    newest, ended = 0, 0
    for event in sorted(changes, key=lambda event: event.began):
        while ended < len(by_end) and by_end[ended].ended < event.began:
            newest = max(newest, by_end[ended].revision)
            ended += 1
        assert event.revision >= newest + (event.code is None), (event, newest)


def require_reads_to_agree(reads: list[Event], changes: list[Event], history: Replayed) -> None:
    """Each read saw a state that was there while it ran."""
    for read in reads:
        first = max((each.revision for each in changes if each.ended < read.began), default=0)
        last = max((each.revision for each in changes if each.began < read.ended), default=0)
        assert any(saw(read, state) for state in history.between(first, last)), read


def saw(read: Event, state: dict[str, tuple[bytes, int]]) -> bool:
    path = read.arguments["path"]
    if path in state:
        content, version = state[path]
        return (read.answer.get("content"), read.answer.get("version")) == (content.decode(), version)
    is_directory = any(file.startswith(path + "/") for file in state)
    return read.code == ("IS_DIRECTORY" if is_directory else "NOT_FOUND")


async def explained(dsn: str, tenant: str, *, pools: int, callers: int, calls: int, seed: int) -> None:
    """Let callers loose on a tenant's projects, and look for an order that explains what they saw."""
    async with AsyncExitStack() as opened:
        databases: list[StoreDatabase] = []
        for _ in range(pools):
            database = WitnessedDatabase(
                await connect(dsn, size=callers), lock_timeout_ms=60_000, on_lock_wait=lambda seconds: None
            )
            opened.push_async_callback(database.pool.aclose)
            databases.append(database)
        async with databases[0].write_transaction(tenant) as connection:
            await connection.execute(REVISION_NOW)
        files = [Files(databases[number % pools], tenant, LIMITS) for number in range(callers)]
        crew = [Caller(each, seed * 100 + number) for number, each in enumerate(files)]
        await asyncio.gather(*(caller.work(calls) for caller in crew))
        events = [event for caller in crew for event in caller.events]
        for project in PROJECTS:
            here = [event for event in events if event.project == project]
            changes = [event for event in here if event.tool != "read" and event.revision != NOWHERE]
            reads = [event for event in here if event.tool == "read"]
            assert len(changes) + len(reads) == len(here), "only what is wrong in itself is refused without a look"
            history = replayed(changes)
            require_time_to_agree(changes)
            require_reads_to_agree(reads, changes, history)
            final = history.states[-1]
            stored = await files[0].rows(
                "SELECT path, content, version FROM mcp_files WHERE project = $1 AND NOT deleted", project
            )
            assert {row["path"]: (row["content"], row["version"]) for row in stored} == final
            total = sum(len(content) for content, _ in final.values())
            assert await files[0].counted_and_real_bytes(project) == (total, total)
        assert len({event.code for event in events}) > 5, "the callers hardly got into each other's way"
        assert overlapping(events) > len(events) // 4


def overlapping(events: list[Event]) -> int:
    """How many calls began while another was running."""
    in_order = sorted(events, key=lambda event: event.began)
    latest, count = 0.0, 0
    for event in in_order:
        count += event.began < latest
        latest = max(latest, event.ended)
    return count


@pytest.mark.contract("S10-1", "S10-4")
@pytest.mark.parametrize("pools", [1, 2])
async def test_the_order_of_revisions_explains_what_everybody_saw(store_dsn: str, tenant: str, pools: int) -> None:
    await explained(store_dsn, tenant, pools=pools, callers=6, calls=120, seed=pools)


def test_an_order_that_does_not_explain_the_answers_is_noticed() -> None:
    def write(content: str, revision: int, size: int, times: tuple[float, float] = (0, 1)) -> Event:
        answer = {"bytes_written": len(content), "version": revision, "size": size}
        return Event("p", "write", {"path": "/a", "content": content, "mode": "APPEND"}, answer, *times, revision)

    history = replayed([write("x", 1, 1), write("yy", 2, 3)])
    assert history.at(2) == {"/a": (b"xyy", 2)}
    with pytest.raises(AssertionError):
        replayed([write("x", 1, 1), write("yy", 2, 2)])
    with pytest.raises(AssertionError):
        replayed([write("x", 1, 1), write("yy", 3, 3)])
    with pytest.raises(AssertionError):
        require_time_to_agree([write("x", 2, 1, (0, 1)), write("yy", 1, 3, (2, 3))])
    stale = Event("p", "read", {"path": "/a"}, {"content": "x", "version": 1}, 4, 5, NOWHERE)
    with pytest.raises(AssertionError):
        require_reads_to_agree([stale], [write("x", 1, 1, (0, 1)), write("yy", 2, 3, (2, 3))], history)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(10, 20))
async def test_the_order_of_revisions_explains_long_histories(store_dsn: str, tenant: str, seed: int) -> None:
    await explained(store_dsn, tenant, pools=2, callers=12, calls=1_000, seed=seed)
