"""The database queries of a search: its extent, nearest vectors, BM25 matches, and current chunks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from armarium.capabilities.store.database.pool import Connection
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.model import ChunkEntry
from armarium.capabilities.store.search.limits import SearchAdmission
from armarium.foundation.sql import queries

_SQL = queries("armarium.capabilities.store.database.sql", "search.sql")
_NARROW = 4
"""A path prefix is narrow if it selects less than one chunk in this many. Chunks are then looked up file by file, which
costs more per chunk than a scan of the project."""

Scores = Mapping[int, float]
"""Scores of chunks by their ids, from one kind of search."""


@dataclass(frozen=True, slots=True)
class SearchExtent:
    """The files that a search covers, with the statistics that BM25 needs."""

    projects: list[str]
    paths: tuple[str, str]
    """The half-open range of paths."""
    chunks: float
    mean_words: float
    languages: list[str]
    narrow: bool = False


@dataclass(frozen=True, slots=True)
class ScoredChunks:
    """The results of one kind of search."""

    scores: Scores = field(default_factory=dict[int, float])
    files: frozenset[int] = frozenset()

    def among(self, ids: set[int]) -> Scores:
        """The scores of these chunks."""
        return {chunk_id: score for chunk_id, score in self.scores.items() if chunk_id in ids}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk whose text is still in its file."""

    chunk_id: int
    entry: ChunkEntry
    embedded: bool
    """Whether it has a vector. Vectors are added after the terms."""


class ChunkQueries:
    """Runs the queries of searches. Each statement waits for a slot among those of all searches."""

    def __init__(self, database: StoreDatabase, admission: SearchAdmission, model: str) -> None:
        self._database = database
        self._admission = admission
        self._model = model

    async def extent(self, tenant: str, project: str, path_prefix: str) -> SearchExtent | None:
        """The extent of a search; None if it covers no chunks."""
        paths = _paths_with(path_prefix)
        if paths is None:
            return None
        async with self._statement(tenant) as connection:
            row = await connection.fetchrow(_SQL["searched_extent"], tenant, project)
            if row is None or not row["projects"]:
                return None
            projects, everything = row["projects"], row["chunks"]
            if path_prefix:
                row = await connection.fetchrow(_SQL["searched_extent_below"], tenant, projects, *paths)
        if row is None or not row["chunks"]:
            return None
        return SearchExtent(
            projects,
            paths,
            row["chunks"],
            max(1.0, row["words"] / row["chunks"]),
            row["languages"],
            narrow=row["chunks"] * _NARROW < everything,
        )

    async def nearest(self, tenant: str, extent: SearchExtent, vector: str, most: int) -> ScoredChunks:
        """The chunks with the nearest vectors."""
        statement = "nearest_chunks_of_files" if extent.narrow else "nearest_chunks"
        where = (extent.projects, *extent.paths)
        return await self._scored(tenant, statement, *where, vector, self._model, most)

    async def with_terms(self, tenant: str, extent: SearchExtent, terms: Sequence[str], most: int) -> ScoredChunks:
        """The chunks that contain the terms, scored by BM25."""
        statement = "chunks_of_files_by_terms" if extent.narrow else "chunks_by_terms"
        where = (extent.projects, *extent.paths)
        return await self._scored(tenant, statement, *where, terms, extent.chunks, extent.mean_words, most)

    async def current(self, tenant: str, hits: Sequence[ScoredChunks], paths: tuple[str, str]) -> list[Candidate]:
        """The found chunks whose text is still in their files."""
        ids = [*{chunk_id: None for found in hits for chunk_id in found.scores}]
        if not ids:
            return []
        files = list({file_id for found in hits for file_id in found.files})
        async with self._statement(tenant) as connection:
            rows = await connection.fetch(_SQL["current_chunks"], tenant, ids, files, *paths, self._model)
        return [
            Candidate(
                row["id"],
                ChunkEntry(
                    project=row["project"],
                    file_path=row["path"],
                    start=row["start_byte"],
                    end=row["end_byte"],
                    content=row["chunk_content"],
                    score=0.0,
                ),
                row["embedded"],
            )
            for row in rows
        ]

    async def record_served(self, tenant: str, chunk_ids: Iterable[int]) -> None:
        """Set `last_served_at` of these chunks."""
        ids = list(chunk_ids)
        if not ids:
            return
        # Not durable: losing a timestamp in a crash is harmless, and a search does not wait for the disk.
        async with (
            self._admission.statement(tenant),
            self._database.write_transaction(tenant, durable=False) as connection,
        ):
            await connection.execute(_SQL["record_served"], tenant, ids)

    async def _scored(self, tenant: str, statement: str, *arguments: object) -> ScoredChunks:
        async with self._statement(tenant) as connection:
            rows = await connection.fetch(_SQL[statement], tenant, *arguments)
        return ScoredChunks({row["chunk_id"]: row["score"] for row in rows}, frozenset(row["file_id"] for row in rows))

    @asynccontextmanager
    async def _statement(self, tenant: str) -> AsyncGenerator[Connection]:
        async with self._admission.statement(tenant), self._database.read_transaction(tenant) as connection:
            yield connection


def _paths_with(prefix: str) -> tuple[str, str] | None:
    """The half-open range of paths with this prefix; None if no valid path has it."""
    if not prefix:
        prefix = "/"
    if not (prefix.startswith("/") and prefix.isascii() and prefix.isprintable()):
        return None
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)
