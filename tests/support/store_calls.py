"""Calls of the store's tools as a server makes them, checked against their schemas, and a look at what is stored."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.model import Chunk, Chunks, Scope
from armarium.capabilities.store.service import Store
from armarium.capabilities.store.settings import StoreSettings
from armarium.capabilities.store.tools import TOOLS
from armarium.foundation.security.identity import Principal
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import bind_tools
from armarium.surfaces.dispatch import Caller, Dispatcher

Json = dict[str, Any]
UNLIMITED = {"rate": {"calls_per_second": 1e9, "burst": 10**9}}


class FoundNothing:
    """A search that notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.found: list[Chunk] = []
        self.notice: str | None = None

    async def search(
        self,
        tenant: str,
        project: str,
        query: str,
        path_prefix: str,
        limit: int,
        key: str | None,
        hidden: Sequence[str] = (),
    ) -> Chunks:
        self.asked.append((tenant, project, query, path_prefix, limit, key))
        answer: Chunks = {"chunks": self.found}
        return answer if self.notice is None else {**answer, "notice": self.notice}


def stored_chunk(project: str, path: str, start: int, end: int, content: str, score: float) -> Chunk:
    """A chunk as a search returns it."""
    return {
        "file_path": path,
        "file_seek_start_bytes": start,
        "file_seek_end_bytes": end,
        "chunk_content": content,
        "score": score,
        "project": project,
    }


class _RecordedCredentials:
    """Stores keys as a test wants it, and records which were discarded."""

    def __init__(self, keep: Callable[[str | None, Scope], Awaitable[str | None]], discarded: list[str]) -> None:
        self.keep = keep
        self._discarded = discarded

    async def take(self, reference: str, scope: Scope) -> str | None:
        raise AssertionError("only workers take keys")

    async def discard(self, reference: str) -> None:
        self._discarded.append(reference)


class Files:
    """One caller's view of a store, and what the store told others."""

    def __init__(
        self,
        database: StoreDatabase,
        tenant: str,
        settings: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        keep: Callable[[str | None, Scope], Awaitable[str | None]] | None = None,
        with_credentials: bool = True,
    ) -> None:
        self.tenant = tenant
        self.database = database
        self.search = FoundNothing()
        self.wake_ups = 0
        self.searches: list[float] = []
        self.mutations: list[tuple[str, str]] = []
        self.kept: list[tuple[str | None, Scope]] = []
        self.discarded: list[str] = []
        chosen = StoreSettings.model_validate(UNLIMITED | dict(settings or {}))
        credentials = _RecordedCredentials(keep or self._keep, self.discarded) if with_credentials else None
        self.store = Store(
            database,
            chosen,
            file_search=self.search if chosen.search.enabled else None,
            credentials=credentials if chosen.search.enabled else None,
            on_committed=self._woken,
            on_mutation=lambda tool, status: self.mutations.append((tool, status)),
            on_search=lambda seconds: self.searches.append(seconds),
        )
        self._dispatcher = Dispatcher(
            [("store", tool) for tool in bind_tools(TOOLS, self.store)],
            metrics=Metrics(),
            audit=None,
            default_deadline_s=None,
            check_answers=True,
        )
        self._caller = Caller(Principal("someone", (), tenant), "test", credential=key)

    async def result(self, tool: str, **arguments: Any) -> Json:
        """Whatever a tool answers; the project is `p` unless said."""
        return (await self._dispatcher.outcome(self._caller, f"file_{tool}", {"project": "p"} | arguments)).result

    async def ok(self, tool: str, **arguments: Any) -> Json:
        """What a call answers that must succeed."""
        result = await self.result(tool, **arguments)
        assert not result.get("isError"), result["structuredContent"]
        return result["structuredContent"]

    async def code(self, tool: str, **arguments: Any) -> str:
        """The code of a call that must fail, in exactly the contract's envelope."""
        result = await self.result(tool, **arguments)
        assert result.get("isError") is True, result["structuredContent"]
        envelope = result["structuredContent"]
        assert set(envelope) - {"retry_after_ms"} == {"code", "message", "retryable"}
        assert json.loads(result["content"][0]["text"]).items() >= envelope.items()
        return envelope["code"]

    async def put(self, *paths: str, content: str = "x", project: str = "p") -> None:
        """Make files."""
        for path in paths:
            await self.ok("write", project=project, path=path, content=content, mode="TRUNCATE")

    async def text(self, path: str, project: str = "p") -> str:
        """The whole content of a file."""
        return (await self.ok("read", project=project, path=path))["content"]

    async def paths(self, path: str = "", depth: int = 99, **arguments: Any) -> list[str]:
        """The paths of a listing; directories end in a slash."""
        listing = await self.ok("list", path=path, depth=depth, **arguments)
        return [entry["path"] + ("/" if entry["type"] == "DIRECTORY" else "") for entry in listing["entries"]]

    async def jobs(self) -> list[tuple[str, str, str | None]]:
        """What is queued for the index, oldest first."""
        rows = await self.rows("SELECT operation, file_path, credential_ref FROM mcp_file_index_jobs ORDER BY id")
        return [(row["operation"], row["file_path"], row["credential_ref"]) for row in rows]

    async def counted_and_real_bytes(self, project: str = "p") -> tuple[int, int]:
        """The project's counter, and the sum it must equal."""
        counter = "SELECT coalesce(max(bytes), 0) AS bytes FROM mcp_file_projects "
        total = "SELECT coalesce(sum(octet_length(content)), 0)::bigint AS bytes FROM mcp_files "
        here = "WHERE apikey_hash = $1 AND project = $2"
        [counted] = await self.rows(counter + here, self.tenant, project)
        [real] = await self.rows(f"{total}{here} AND deleted = FALSE", self.tenant, project)
        return counted["bytes"], real["bytes"]

    async def rows(self, query: str, *arguments: Any) -> list[Any]:
        """What the database holds for this tenant."""
        async with self.database.read_transaction(self.tenant) as connection:
            return list(await connection.fetch(query, *arguments))

    async def _keep(self, key: str | None, scope: Scope) -> str | None:
        self.kept.append((key, scope))
        return None if key is None else f"reference-{len(self.kept)}"

    def _woken(self) -> None:
        self.wake_ups += 1
