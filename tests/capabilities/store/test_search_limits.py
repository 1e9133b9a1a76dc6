"""A search is bounded: how many run for one caller, how long models are waited for, and how much a prefix reads."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import anyio
import orjson
import pytest

from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import RateLimited, ResourceBusy, SearchBackendError
from armarium.capabilities.store.index.embedders import StoreModels
from armarium.capabilities.store.index.file_index import FileIndex
from armarium.capabilities.store.model import Chunks, Scope
from armarium.capabilities.store.search.file_search import LEXICAL_ONLY, FileSearch
from armarium.capabilities.store.search.limits import SearchAdmission, statements_at_once
from armarium.capabilities.store.settings import SearchSettings
from armarium.capabilities.store.tools import TOOLS
from armarium.foundation.security.identity import Principal
from armarium.foundation.sql import queries
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import bind_tools
from armarium.providers.errors import ProviderError, ProviderUnavailable
from armarium.providers.vendors import OPENAI
from armarium.surfaces.dispatch import Caller, Dispatcher
from support.store_calls import Files
from support.stored_files import StoredFiles, WordVectors, index_file
from support.waiting import eventually

PROJECT = "notes"


class Questions(WordVectors):
    """Embeds questions only while it is let, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.let_go = anyio.Event()
        self.let_go.set()

    async def embed_query(self, text: str) -> Any:
        self.asked += 1
        await self.let_go.wait()
        return await super().embed_query(text)


class Searched:
    """A database with files of callers, and a search whose clock and limits a test chooses."""

    def __init__(self, database: StoreDatabase, settings: SearchSettings | None = None, **options: Any) -> None:
        self.database = database
        self.now_s = 0.0
        self.rerank_failures = 0
        self.words = Questions()
        self.models = StoreModels(local=self.words)
        self._index = FileIndex(database, self.models)
        self._engine = FileSearch(
            database,
            self.models,
            settings or SearchSettings(),
            on_rerank_failure=self._rerank_failed,
            now=lambda: self.now_s,
            **options,
        )

    def _rerank_failed(self) -> None:
        self.rerank_failures += 1

    async def caller(self, **files: str) -> str:
        """A new caller with files whose names are given without the slash."""
        tenant = secrets.token_hex(32)
        stored = StoredFiles(self.database, Scope(tenant, PROJECT))
        for name, content in files.items():
            await stored.write(f"/{name}", content)
            await index_file(self._index, stored.scope, f"/{name}")
        return tenant

    async def search(self, tenant: str, query: str = "rain", prefix: str = "") -> Chunks:
        return await self._engine.search(tenant, PROJECT, query, prefix, 20, "key")

    async def found(self, tenant: str, query: str = "rain", prefix: str = "") -> list[str]:
        return [entry["file_path"] for entry in (await self.search(tenant, query, prefix))["chunks"]]


async def test_a_caller_has_so_many_searches_at_once_and_others_do_not_wait_for_them(database: StoreDatabase) -> None:
    searched = Searched(database, SearchSettings(concurrent_per_caller=2, waiting_per_caller=3, wait_ms=60_000))
    crowd, other = await searched.caller(a="rain"), await searched.caller(b="rain")
    done: list[list[str]] = []

    async def search() -> None:
        done.append(await searched.found(crowd))

    searched.words.let_go = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(search)
        await eventually(lambda: searched.words.asked == 2)
        await anyio.wait_all_tasks_blocked()
        # Two run and three wait: the sixth is one too many.
        with pytest.raises(RateLimited) as raised:
            await searched.search(crowd)
        assert raised.value.retryable
        assert raised.value.details["retry_after_ms"] > 0
        tasks.start_soon(searched.found, other)
        await eventually(lambda: searched.words.asked == 3)
        searched.words.let_go.set()
    assert done == [["/a"]] * 5


async def test_a_search_that_waits_too_long_is_refused_and_its_place_is_free_again(database: StoreDatabase) -> None:
    searched = Searched(database, SearchSettings(concurrent_per_caller=1, wait_ms=50))
    caller = await searched.caller(a="rain")
    searched.words.let_go = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(searched.found, caller)
        await eventually(lambda: searched.words.asked == 1)
        with pytest.raises(RateLimited):
            await searched.search(caller)
        searched.words.let_go.set()
    assert await searched.found(caller) == ["/a"]


async def test_the_statements_of_searches_leave_connections_to_everybody_else() -> None:
    assert [statements_at_once(size) for size in (2, 3, 5, 10, 100)] == [1, 1, 2, 4, 40]
    room = SearchAdmission(SearchSettings(wait_ms=50), statements=2)
    async with room.statement("crowd"):
        # One of the two is left to others, and when all are taken it is told that the server is busy.
        with pytest.raises(ResourceBusy):
            async with room.statement("crowd"):
                pass
        async with room.statement("other"):
            with pytest.raises(ResourceBusy) as raised:
                async with room.statement("third"):
                    pass
    assert raised.value.code == "RESOURCE_BUSY"


async def test_a_slow_embedder_is_not_waited_for_and_the_answer_says_so(database: StoreDatabase) -> None:
    searched = Searched(database, SearchSettings(embed_timeout_ms=50))
    caller = await searched.caller(a="rain", b="sun")
    assert (await searched.search(caller)).get("notice") is None
    searched.words.let_go = anyio.Event()
    found = await searched.search(caller)
    assert ([entry["file_path"] for entry in found["chunks"]], found.get("notice")) == (["/a"], LEXICAL_ONLY)
    with pytest.raises(SearchBackendError):
        await searched.search(caller, "!?")


async def test_an_embedder_that_keeps_failing_is_left_alone_and_then_tried_by_one_search(
    database: StoreDatabase,
) -> None:
    searched = Searched(database)
    caller, other = await searched.caller(a="rain"), await searched.caller(a="rain")
    searched.words.failure = ProviderUnavailable("gone")
    for _ in range(10):
        assert await searched.found(caller) == ["/a"]
    assert searched.words.asked == 3
    # What fails for one caller may work for another, whose key it is asked with.
    assert await searched.found(other) == ["/a"]
    assert searched.words.asked == 4

    searched.now_s = 31.0
    searched.words.let_go = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(searched.found, caller)
        await eventually(lambda: searched.words.asked == 5)
        assert (await searched.search(caller)).get("notice") == LEXICAL_ONLY
        assert searched.words.asked == 5, "only one tries"
        searched.words.let_go.set()
    await searched.found(caller)
    assert searched.words.asked == 5, "the trial failed"

    searched.now_s = 62.0
    searched.words.failure = None
    assert (await searched.search(caller)).get("notice") is None
    assert (await searched.search(caller)).get("notice") is None
    assert searched.words.asked == 7


@pytest.mark.parametrize("refusal", [OPENAI.auth("wrong key")])
async def test_a_refusal_that_costs_no_time_is_no_reason_to_stop_asking(
    database: StoreDatabase, refusal: ProviderError
) -> None:
    searched = Searched(database)
    caller = await searched.caller(a="rain")
    searched.words.failure = refusal
    for _ in range(5):
        assert await searched.found(caller) == ["/a"]
    assert searched.words.asked == 5


class AwayReranker:
    """Counts who asks, and fails until it is told not to."""

    def __init__(self) -> None:
        self.asked = 0
        self.away = True

    async def rerank(self, query: str, texts: Sequence[str], most: int) -> list[tuple[int, float]]:
        self.asked += 1
        if self.away:
            raise ProviderUnavailable("gone")
        return [(place, 1.0) for place in range(most)]

    async def aclose(self) -> None:
        """Nothing is held."""


async def test_a_reranker_that_keeps_failing_is_left_alone_and_then_tried(
    database: StoreDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker = AwayReranker()

    @asynccontextmanager
    async def lent(_models: StoreModels, _key: str | None) -> AsyncGenerator[AwayReranker]:
        yield reranker

    monkeypatch.setattr(StoreModels, "reranks", lambda _models, _key: True)
    monkeypatch.setattr(StoreModels, "reranker", lent)
    searched = Searched(database)
    caller = await searched.caller(a="rain", b="rain and sun")
    for _ in range(10):
        assert len(await searched.found(caller)) == 2
    assert (reranker.asked, searched.rerank_failures) == (3, 10)
    searched.now_s = 31.0
    for _ in range(2):
        await searched.found(caller)
    assert reranker.asked == 4, "the trial failed, too"
    searched.now_s = 62.0
    reranker.away = False
    for _ in range(3):
        await searched.found(caller)
    assert (reranker.asked, searched.rerank_failures) == (7, 12)


@pytest.mark.contract("S13-3")
async def test_a_search_without_a_database_is_told_as_trouble_of_the_search(store_dsn: str, tenant: str) -> None:
    database = StoreDatabase(await connect(store_dsn, size=2), lock_timeout_ms=500, on_lock_wait=lambda seconds: None)
    searched = Searched(database)
    caller = await searched.caller(a="rain")
    async with database.pool.connection() as connection:
        # Nobody answers, and nobody can connect again.
        connection.terminate()
        searched.database.pool.connect = _refused
        with pytest.raises(SearchBackendError) as raised:
            await searched.search(caller)
    assert (raised.value.code, raised.value.retryable) == ("SEARCH_BACKEND_ERROR", True)
    await database.pool.aclose()


async def _refused() -> Any:
    raise ConnectionRefusedError


@pytest.mark.contract("S13-3")
async def test_where_searching_is_switched_off_it_says_so(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"search": {"enabled": False}})
    result = await files.result("search", query="rain")
    assert result["structuredContent"]["code"] == "SEARCH_BACKEND_ERROR"
    assert result["structuredContent"]["retryable"] is False


async def test_the_answer_tells_how_it_was_found_only_when_there_is_something_unsent(
    database: StoreDatabase, tenant: str
) -> None:
    files = Files(database, tenant)
    assert await files.ok("search", query="rain") == {"chunks": []}
    files.search.notice = LEXICAL_ONLY
    assert await files.ok("search", query="rain") == {"chunks": [], "notice": LEXICAL_ONLY}


@pytest.mark.contract("S14-2")
async def test_what_is_searched_for_is_not_written_down(database: StoreDatabase, tenant: str) -> None:
    written: list[Any] = []
    dispatcher = Dispatcher(
        [("store", tool) for tool in bind_tools(TOOLS, Files(database, tenant).store)],
        metrics=Metrics(),
        audit=cast(Any, SimpleNamespace(append=written.append)),
        default_deadline_s=None,
    )
    caller = Caller(Principal("someone", (), tenant), "test")
    await dispatcher.outcome(caller, "file_search", {"project": "p", "query": "a private matter"})
    await eventually(lambda: written)
    (record,) = written
    assert "project" in str(record)
    assert "private matter" not in str(record)


@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("prefix", ["", "/", "/d", "/d/", "/d/1", "/d/11", "/e/3/x", "/~", "d", "/d\x00", "/é"])
async def test_a_prefix_finds_the_same_whether_files_are_read_one_by_one_or_all_in_a_row(
    database: StoreDatabase, narrow: bool, prefix: str
) -> None:
    searched = Searched(database, narrow=2 if narrow else 0)
    paths = [f"/{place}/{number}/x" for place in ("d", "e") for number in (1, 11, 3)] + ["/d"]
    caller = await searched.caller(**{path[1:]: f"rain {'sun ' * number}" for number, path in enumerate(paths)})
    expected = sorted(path for path in paths if path.startswith(prefix))
    assert sorted(await searched.found(caller, prefix=prefix)) == expected


async def test_a_narrow_prefix_reads_its_own_chunks_and_no_others(database: StoreDatabase) -> None:
    searched = Searched(database)
    caller = await searched.caller(**{f"d/{number}": f"rain {number}" for number in range(60)}, **{"e/1": "rain"})
    search_sql = queries("armarium.capabilities.store.database.sql", "search.sql")
    projects, paths = [PROJECT], ("/e/", "/e0")
    vector = orjson.dumps(await searched.words.embed_query("rain"), option=orjson.OPT_SERIALIZE_NUMPY).decode()
    statements = {
        "nearest_chunks_of_files": (vector, searched.words.model, 30),
        "chunks_of_files_by_terms": (["rain"], 1.0, 1.0, 30),
    }
    for name, arguments in statements.items():
        async with database.write_transaction(caller) as connection:
            # Tables of a test are so small that reading all of them is the cheapest.
            await connection.execute("SET LOCAL enable_seqscan = off")
            (plan,) = orjson.loads(
                await connection.fetchval(
                    f"EXPLAIN (ANALYZE, FORMAT JSON) {search_sql[name]}",
                    caller,
                    projects,
                    *paths,
                    *arguments,
                )
            )
        assert most_rows(plan["Plan"]) == 1, name


def most_rows(node: dict[str, Any]) -> float:
    """The most rows that a scan of a table of chunks looked at."""
    removed = sum(value for name, value in node.items() if name.startswith("Rows Removed"))
    of_chunks = node.get("Relation Name", "").startswith("mcp_file_chunk")
    own = (node["Actual Rows"] + removed) * node["Actual Loops"] if of_chunks else 0
    return max([own, *(most_rows(child) for child in node.get("Plans", []))])
