"""Chunks are found by meaning and by words, in their own tenant only, and only while their file still says them."""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import AsyncGenerator
from datetime import datetime

import asyncpg
import numpy
import pytest

from armarium.capabilities.store.database.pool import Connection
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import SearchBackendError
from armarium.capabilities.store.index.chunker import chunk_terms, query_terms
from armarium.capabilities.store.index.embedders import StoreModels
from armarium.capabilities.store.index.file_index import FileIndex
from armarium.capabilities.store.model import Chunk, Scope
from armarium.capabilities.store.search.file_search import FileSearch, fused_scores
from armarium.capabilities.store.settings import (
    LOCAL_DIMENSIONS,
    EmbeddingSettings,
    FallbackSettings,
    RerankSettings,
    SearchSettings,
)
from armarium.capabilities.store.validation import ALL_PROJECTS
from armarium.providers.errors import ProviderUnavailable
from emulators import CohereEmulator, OpenAIEmulator, ServerError, Silent, Unusable
from support.stored_files import StoredFiles, WordVectors, index_file


def _weighted(semantic: float, lexical: float) -> SearchSettings:
    return SearchSettings(fallback=FallbackSettings(semantic_weight=semantic, lexical_weight=lexical))


class Project:
    """One project: files are searchable as soon as they are written, unless the index is told to lag behind."""

    def __init__(
        self, database: StoreDatabase, scope: Scope, models: StoreModels, settings: SearchSettings | None = None
    ) -> None:
        self.database = database
        self.scope = scope
        self.files = StoredFiles(database, scope)
        self.index = FileIndex(database, models)
        self.rerank_failures = 0
        self.notice: str | None = None
        """What the last search said about itself."""
        self.engine = FileSearch(database, models, settings or SearchSettings(), on_rerank_failure=self._rerank_failed)

    def _rerank_failed(self) -> None:
        self.rerank_failures += 1

    async def write(self, path: str, content: str) -> None:
        await self.files.write(path, content)
        await index_file(self.index, self.scope, path, "key")

    async def search(
        self, query: str, prefix: str = "", *, limit: int = 5, project: str | None = None, key: str | None = "key"
    ) -> list[Chunk]:
        scope = self.scope
        found = await self.engine.search(scope.apikey_hash, project or scope.project, query, prefix, limit, key)
        self.notice = found.get("notice")
        return found["chunks"]

    async def found(self, query: str, prefix: str = "", *, limit: int = 5, project: str | None = None) -> list[str]:
        return [entry["file_path"] for entry in await self.search(query, prefix, limit=limit, project=project)]

    async def served(self) -> dict[str, datetime | None]:
        async with self.database.read_transaction(self.scope.apikey_hash) as connection:
            rows = await connection.fetch(
                "SELECT file_path, max(last_served_at) AS at FROM mcp_file_chunks WHERE project = $1 GROUP BY 1",
                self.scope.project,
            )
        return {row["file_path"]: row["at"] for row in rows}


@pytest.fixture
def words() -> WordVectors:
    return WordVectors()


@pytest.fixture
def models(words: WordVectors) -> StoreModels:
    return StoreModels(local=words)


@pytest.fixture
def project(database: StoreDatabase, tenant: str, models: StoreModels) -> Project:
    return Project(database, Scope(tenant, "notes"), models)


@pytest.mark.contract("S3.1-4", "S11.3-2")
async def test_the_chunk_that_fits_best_comes_first_and_can_be_read_back(project: Project) -> None:
    await project.write("/weather.txt", "ä" * 1500 + "\n\nIt rains in spring and the river rises.")
    await project.write("/cooking.txt", "Onions are fried before the rice is added.")
    best = (await project.search("river in spring"))[0]
    assert best["file_path"] == "/weather.txt"
    assert best["chunk_content"].endswith("It rains in spring and the river rises.")
    async with project.database.read_transaction(project.scope.apikey_hash) as connection:
        content: bytes = await connection.fetchval("SELECT content FROM mcp_files WHERE path = '/weather.txt'")
    assert content[best["file_seek_start_bytes"] : best["file_seek_end_bytes"]] == best["chunk_content"].encode()


@pytest.mark.contract("S9.7-5")
async def test_scores_fall_from_one_to_nothing(project: Project) -> None:
    for number in range(8):
        await project.write(f"/{number}", "rain " * number + "sun " * (8 - number))
    scores = [entry["score"] for entry in await project.search("rain", limit=20)]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 8
    assert 0 <= scores[-1] < scores[0] <= 1


async def test_an_empty_project_and_a_query_without_words_find_what_there_is(project: Project) -> None:
    assert await project.search("anything") == []
    await project.write("/a", "something")
    assert await project.found("?!") == ["/a"]


@pytest.mark.contract("S9.7-2")
@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("", {"/a_b/one", "/axb/two", "/a%b", "/a_bc"}),
        ("/a_b", {"/a_b/one", "/a_bc"}),
        ("/a_b/", {"/a_b/one"}),
        ("/a%", {"/a%b"}),
        ("/a\\_b", set()),
        ("a_b", set()),
        ("/a\0", set()),
        ("/é", set()),
    ],
)
async def test_a_prefix_is_a_plain_string_in_which_nothing_is_special(
    project: Project, prefix: str, expected: set[str]
) -> None:
    for path in ("/a_b/one", "/axb/two", "/a%b", "/a_bc"):
        await project.write(path, "the same words")
    assert set(await project.found("words", prefix)) == expected


@pytest.mark.contract("S9.7-2")
async def test_a_prefix_leaves_room_for_what_has_it(database: StoreDatabase, tenant: str, models: StoreModels) -> None:
    settings = SearchSettings(vector_candidates=2, bm25_candidates=2)
    project = Project(database, Scope(tenant, "notes"), models, settings)
    for number in range(6):
        await project.write(f"/best/{number}", "rain rain rain")
    await project.write("/wanted", "rain, among many other things that are said")
    assert await project.found("rain", "/wanted") == ["/wanted"]


@pytest.mark.contract("S3-4", "S9.7-4")
async def test_a_deleted_file_is_never_found_even_when_the_index_lags_behind(project: Project) -> None:
    await project.write("/a", "a secret word")
    await project.files.delete("/a")
    assert await project.search("secret") == []
    await project.files.write("/a", "something else at this path")
    assert await project.search("secret") == []


async def test_what_was_overwritten_is_never_given_away_and_the_rest_still_is(project: Project) -> None:
    kept = "The beginning stays. " * 60 + "\n\n"
    await project.write("/a", f"{kept}{'The secret is out. ' * 60}")
    await project.files.write("/a", f"{kept}{'Nothing to see. ' * 60}")
    found = await project.search("secret beginning", limit=20)
    assert found
    assert not any("secret" in entry["chunk_content"] for entry in found)


async def test_a_renamed_file_is_found_under_its_new_path_at_once(project: Project) -> None:
    await project.write("/old", "a wandering text")
    await project.files.rename("/old", "/new")
    assert await project.found("wandering") == ["/new"]
    assert await project.found("wandering", "/old") == []


@pytest.mark.contract("S6.2-2", "S12-5")
async def test_other_tenants_and_other_projects_are_not_searched(
    project: Project, database: StoreDatabase, models: StoreModels
) -> None:
    elsewhere = Project(database, Scope(project.scope.apikey_hash, "elsewhere"), models)
    stranger = Project(database, Scope(secrets.token_hex(32), "notes"), models)
    for each, path in ((project, "/mine"), (elsewhere, "/elsewhere"), (stranger, "/theirs")):
        await each.write(path, "the same words")
    assert await project.found("words") == ["/mine"]
    across = await project.search("words", project=ALL_PROJECTS)
    assert {(entry["project"], entry["file_path"]) for entry in across} == {
        ("notes", "/mine"),
        ("elsewhere", "/elsewhere"),
    }


@pytest.mark.contract("S9.7-7")
async def test_only_chunks_in_the_answer_count_as_served(project: Project) -> None:
    for number in range(6):
        await project.write(f"/{number}", f"rain {'sun ' * number}")
    given = await project.found("rain", limit=2)
    served = await project.served()
    assert len(given) == 2
    assert {path for path, at in served.items() if at} == set(given)


async def test_a_search_does_not_wait_for_rows_that_others_hold(project: Project) -> None:
    await project.write("/a", "rain")
    async with project.database.write_transaction(project.scope.apikey_hash) as connection:
        await connection.fetch(
            "SELECT id FROM mcp_file_chunks WHERE apikey_hash = $1 FOR UPDATE", project.scope.apikey_hash
        )
        assert await project.found("rain") == ["/a"]
    assert await project.served() == {"/a": None}


async def test_words_alone_are_searched_when_the_query_cannot_be_embedded(project: Project, words: WordVectors) -> None:
    await project.write("/a", "rain")
    await project.write("/b", "sun")
    words.failure = ProviderUnavailable("gone")
    assert [(entry["file_path"], entry["score"]) for entry in await project.search("rain")] == [("/a", 1.0)]
    with pytest.raises(SearchBackendError) as raised:
        await project.search("!?")
    assert (raised.value.code, raised.value.retryable) == ("SEARCH_BACKEND_ERROR", True)


@pytest.mark.contract("S13-3")
async def test_trouble_in_the_database_is_trouble_of_the_search(database: StoreDatabase, tenant: str) -> None:
    short = WordVectors()
    project = Project(database, Scope(tenant, "notes"), StoreModels(local=short))
    await project.write("/a", "rain")
    short.dimensions = 3
    with pytest.raises(SearchBackendError) as raised:
        await project.search("rain")
    assert isinstance(raised.value.__cause__, asyncpg.PostgresError)


def bm25(query: str, texts: list[str], k1: float = 1.2, b: float = 0.75) -> list[float]:
    """The textbook's formula."""
    chunks = [Counter(chunk_terms(text).counts) for text in texts]
    lengths = [chunk_terms(text).length for text in texts]
    mean = sum(lengths) / len(lengths)
    scores = [0.0] * len(texts)
    for term in query_terms(query, ["english"]):
        df = sum(term in chunk for chunk in chunks)
        idf = math.log(1 + (len(texts) - df + 0.5) / (df + 0.5))
        for place, chunk in enumerate(chunks):
            tf = chunk[term]
            scores[place] += idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * lengths[place] / mean))
    return scores


async def test_words_are_scored_by_bm25(database: StoreDatabase, tenant: str, models: StoreModels) -> None:
    project = Project(database, Scope(tenant, "notes"), models, _weighted(0, 1))
    texts = [
        f"{'rain ' * (number % 5)}{'storms ' * (number % 3)}{'and other words ' * number}" for number in range(1, 15)
    ]
    for number, text in enumerate(texts):
        await project.write(f"/{number:02}", text)
    await project.write("/deleted", "rain " * 50)
    await project.files.delete("/deleted")
    await project.index.forget(project.scope, "/deleted")
    expected = bm25("rain or a storm", texts)
    matching = [score for score in expected if score]
    lowest, highest = min(matching), max(matching)
    found = {entry["file_path"]: entry["score"] for entry in await project.search("rain or a storm", limit=20)}
    for number, score in enumerate(expected):
        if score:
            assert found[f"/{number:02}"] == pytest.approx((score - lowest) / (highest - lowest))
        else:
            assert found[f"/{number:02}"] == 0


async def test_nothing_that_is_near_is_missed(database: StoreDatabase, tenant: str, words: WordVectors) -> None:
    settings = _weighted(1, 0)
    project = Project(database, Scope(tenant, "notes"), StoreModels(local=words), settings)
    texts = [f"w{number % 7} w{number % 11} w{number % 13} w{number}" for number in range(60)]
    for number, text in enumerate(texts):
        await project.write(f"/{number:02}", text)
    query = "w3 w5 w44"
    vector = await words.embed_query(query)
    nearness = (await words.embed(texts)) @ vector
    tenth = numpy.sort(nearness)[-10]
    found = await project.found(query, limit=10)
    assert len(found) == 10
    assert all(nearness[int(path[1:])] >= tenth - 1e-6 for path in found)


@pytest.mark.contract("S4-3", "S9.7-6", "S12-2")
def test_fusion_weighs_both_sides_from_zero_to_one() -> None:
    fused = fused_scores({1: 0.9, 2: 0.5, 3: 0.7}, {3: 12.0, 4: 2.0}, semantic_weight=0.6, lexical_weight=0.4)
    assert fused == pytest.approx({1: 0.6, 2: 0.0, 3: 0.6 * 0.5 + 0.4, 4: 0.0})


@pytest.mark.contract("S12-2")
@pytest.mark.parametrize(
    ("semantic", "lexical", "weights", "expected"),
    [
        ({}, {}, (0.6, 0.4), {}),
        ({1: 0.3}, {}, (0.6, 0.4), {1: 1.0}),
        ({}, {1: 4.0, 2: 1.0}, (0.6, 0.4), {1: 1.0, 2: 0.0}),
        ({1: 0.3, 2: 0.3}, {}, (0.6, 0.4), {1: 1.0, 2: 1.0}),
        ({1: 0.3, 2: 0.2}, {}, (0.0, 1.0), {1: 1.0, 2: 0.0}),
        ({1: 0.3}, {2: 5.0}, (0.0, 1.0), {1: 0.0, 2: 1.0}),
        ({1: 0.3}, {2: 5.0}, (3.0, 1.0), {1: 0.75, 2: 0.25}),
    ],
)
def test_fusion_when_a_side_is_silent_or_counts_for_nothing(
    semantic: dict[int, float], lexical: dict[int, float], weights: tuple[float, float], expected: dict[int, float]
) -> None:
    fused = fused_scores(semantic, lexical, semantic_weight=weights[0], lexical_weight=weights[1])
    assert fused == pytest.approx(expected)


def test_a_chunk_without_a_vector_stands_where_its_words_put_it() -> None:
    semantic, lexical = {1: 0.9, 2: 0.5}, {2: 12.0, 3: 7.0, 4: 2.0}
    with_all = fused_scores(semantic, lexical, semantic_weight=0.5, lexical_weight=0.5)
    fused = fused_scores(semantic, lexical, semantic_weight=0.5, lexical_weight=0.5, without_vector={3, 4})
    assert fused == pytest.approx(with_all | {3: 0.5, 4: 0.0})
    assert with_all[3] == pytest.approx(0.25)


async def test_words_are_found_before_vectors_and_weigh_alone_until_then(project: Project) -> None:
    for number in range(4):
        await project.write(f"/old/{number}", f"rain {'and sun ' * (number + 3)}")
    await project.files.write("/new", "rain rain rain")
    await project.index.write_terms(project.scope, "/new")
    best = (await project.search("rain"))[0]
    assert (best["file_path"], best["score"]) == ("/new", 1.0)
    assert await project.found("?!", "/new") == []
    await project.index.embed(project.scope, "/new", "key")
    assert (await project.found("rain"))[0] == "/new"
    assert await project.found("?!", "/new") == ["/new"]


@pytest.fixture
async def reranked(
    database: StoreDatabase, tenant: str, words: WordVectors
) -> AsyncGenerator[tuple[Project, CohereEmulator]]:
    with CohereEmulator("key") as cohere:
        rerank = RerankSettings(endpoint=f"{cohere.url}/rerank", timeout_ms=500)
        models = StoreModels(local=words, reranker=rerank)
        project = Project(database, Scope(tenant, "notes"), models, SearchSettings(rerank=rerank))
        # The fused order prefers the first, the reranker the second.
        await project.write("/often", "rain " * 30)
        await project.write("/both", f"rain in spring {'and other words ' * 60}")
        yield project, cohere
        await models.aclose()


@pytest.mark.contract("S4-3", "S12-3", "S15-6")
async def test_a_reranker_is_asked_with_the_callers_key_and_decides(reranked: tuple[Project, CohereEmulator]) -> None:
    project, cohere = reranked
    found = await project.search("rain in spring")
    assert [(entry["file_path"], entry["score"]) for entry in found] == [
        ("/both", 1.0),
        ("/often", pytest.approx(1 / 3)),
    ]
    assert cohere.requests[0].headers["authorization"] == "Bearer key"
    assert (cohere.bodies("/rerank")[0]["model"], project.rerank_failures) == ("rerank-v3.5", 0)


@pytest.mark.contract("S12-4", "S12-5")
@pytest.mark.parametrize("fault", [ServerError(status=500, retry_after=60), Silent(), Unusable(change=lambda _: {})])
async def test_the_fused_order_stands_in_for_a_reranker_that_fails(
    reranked: tuple[Project, CohereEmulator], fault: ServerError | Silent | Unusable
) -> None:
    project, cohere = reranked
    cohere.faults.append(fault)
    assert await project.found("rain") == ["/often", "/both"]
    assert project.rerank_failures == 1
    await project.files.delete("/often")
    cohere.faults.append(fault)
    assert await project.found("rain") == ["/both"]


async def test_what_a_reranker_leaves_out_comes_last_with_no_better_score(
    reranked: tuple[Project, CohereEmulator],
) -> None:
    project, cohere = reranked
    cohere.faults.append(Unusable(change=lambda answer: answer | {"results": answer["results"][:1]}))
    found = await project.search("rain in spring")
    assert found[0]["file_path"] == "/both"
    assert found[0]["score"] >= found[1]["score"]


async def test_a_key_that_cannot_be_sent_is_a_failure_of_the_reranker(reranked: tuple[Project, CohereEmulator]) -> None:
    project, cohere = reranked
    assert len(await project.search("rain", key="schlüssel")) == 2
    assert (cohere.requests, project.rerank_failures) == ([], 1)


async def test_without_a_key_nobody_reranks(reranked: tuple[Project, CohereEmulator]) -> None:
    project, cohere = reranked
    assert len(await project.search("rain in spring", key=None)) == 2
    assert (cohere.requests, project.rerank_failures) == ([], 0)


@pytest.mark.contract("S15-6")
async def test_queries_are_embedded_with_the_callers_key(database: StoreDatabase, tenant: str) -> None:
    with OpenAIEmulator("key") as endpoint:
        embedding = EmbeddingSettings(base_url=endpoint.url, dimensions=LOCAL_DIMENSIONS)
        models = StoreModels(hosted=embedding)
        project = Project(database, Scope(tenant, "notes"), models)
        await project.write("/a", "rain in spring")
        assert await project.found("spring") == ["/a"]
        sent = endpoint.bodies("/embeddings")
        assert [(body["input"], body["dimensions"]) for body in sent] == [
            (["rain in spring"], LOCAL_DIMENSIONS),
            (["spring"], LOCAL_DIMENSIONS),
        ]
        without = [entry["file_path"] for entry in await project.search("spring", key=None)]
        assert without == ["/a"]
        assert len(endpoint.requests) == 2
        await models.aclose()


async def test_an_endpoint_that_fails_is_asked_once_before_words_alone_answer(
    database: StoreDatabase, tenant: str
) -> None:
    with OpenAIEmulator("key") as endpoint:
        embedding = EmbeddingSettings(base_url=endpoint.url, dimensions=LOCAL_DIMENSIONS)
        models = StoreModels(hosted=embedding)
        project = Project(database, Scope(tenant, "notes"), models)
        await project.write("/a", "rain in spring")
        endpoint.faults.extend([ServerError(status=500)] * 3)
        assert await project.found("spring") == ["/a"]
        assert len(endpoint.faults) == 2
        await models.aclose()


async def test_the_local_model_finds_by_meaning(database: StoreDatabase, tenant: str) -> None:
    models = StoreModels()
    project = Project(database, Scope(tenant, "notes"), models)
    try:
        await project.write("/money.txt", "The invoice must be paid within thirty days.")
        await project.write("/cat.txt", "A kitten sleeps on the warm windowsill.")
        await project.write("/code.py", "def parse_header(line: bytes) -> Header: ...")
        assert (await project.found("young feline napping"))[0] == "/cat.txt"
        assert (await project.found("parseHeader"))[0] == "/code.py"
    finally:
        await models.aclose()


async def test_every_statement_of_index_and_search_is_one_the_database_knows(
    database: StoreDatabase, tenant: str
) -> None:
    from armarium.foundation.sql import queries

    async with database.read_transaction(tenant) as connection:
        for file in ("index.sql", "search.sql"):
            for statement in queries("armarium.capabilities.store.database.sql", file).values():
                await prepared(connection, statement)


async def prepared(connection: Connection, statement: str) -> None:
    await connection.execute(f"PREPARE one AS {statement}")
    await connection.execute("DEALLOCATE one")
