"""The database queries of a search: its extent, nearest vectors, BM25 matches, and current chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from armarium.capabilities.store.database.pool import Connection
from armarium.capabilities.store.model import Chunk
from armarium.foundation.sql import queries

_SQL = queries("armarium.capabilities.store.database.sql", "search.sql")

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
    scores: Scores = field(default_factory=dict[int, float])
    files: frozenset[int] = frozenset()

    def among(self, ids: set[int]) -> Scores:
        return {chunk_id: score for chunk_id, score in self.scores.items() if chunk_id in ids}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk whose text is still in its file."""

    chunk_id: int
    chunk: Chunk
    embedded: bool
    """Whether it has a vector. Vectors are added after the terms."""


class ChunkQueries:
    """The queries of searches, in one transaction of a tenant.

    A path prefix that selects less than the share `narrow` of all chunks is narrow: chunks are then looked up file by
    file, which costs more per chunk than a scan of the project.
    """

    def __init__(self, connection: Connection, tenant: str, model: str, narrow: float) -> None:
        self._connection = connection
        self._tenant = tenant
        self._model = model
        self._narrow = narrow

    async def extent(self, project: str, path_prefix: str, hidden: Sequence[str] = ()) -> SearchExtent | None:
        """The extent of a search; None if it covers no chunks. Projects that match an expression in `hidden` are left
        out."""
        paths = _paths_with(path_prefix)
        if paths is None:
            return None
        row = await self._connection.fetchrow(_SQL["searched_extent"], self._tenant, project, hidden)
        if row is None or not row["projects"]:
            return None
        projects, everything = row["projects"], row["chunks"]
        if path_prefix:
            row = await self._connection.fetchrow(_SQL["searched_extent_below"], self._tenant, projects, *paths)
        if row is None or not row["chunks"]:
            return None
        return SearchExtent(
            projects,
            paths,
            row["chunks"],
            max(1.0, row["words"] / row["chunks"]),
            row["languages"],
            narrow=row["chunks"] < everything * self._narrow,
        )

    async def nearest(self, extent: SearchExtent, vector: str, most: int) -> ScoredChunks:
        statement = "nearest_chunks_of_files" if extent.narrow else "nearest_chunks"
        return await self._scored(statement, extent.projects, *extent.paths, vector, self._model, most)

    async def with_terms(self, extent: SearchExtent, terms: Sequence[str], most: int) -> ScoredChunks:
        """The chunks that contain the terms, scored by BM25."""
        statement = "chunks_of_files_by_terms" if extent.narrow else "chunks_by_terms"
        statistics = (extent.chunks, extent.mean_words)
        return await self._scored(statement, extent.projects, *extent.paths, terms, *statistics, most)

    async def current(self, hits: Sequence[ScoredChunks], paths: tuple[str, str]) -> list[Candidate]:
        """The found chunks whose text is still in their files."""
        ids = [*{chunk_id: None for found in hits for chunk_id in found.scores}]
        if not ids:
            return []
        files = list({file_id for found in hits for file_id in found.files})
        rows = await self._connection.fetch(_SQL["current_chunks"], self._tenant, ids, files, *paths, self._model)
        return [
            Candidate(
                row["id"],
                {
                    "file_path": row["path"],
                    "file_seek_start_bytes": row["start_byte"],
                    "file_seek_end_bytes": row["end_byte"],
                    "chunk_content": row["chunk_content"],
                    "score": 0.0,
                    "project": row["project"],
                },
                row["embedded"],
            )
            for row in rows
        ]

    async def record_served(self, candidates: Sequence[Candidate]) -> None:
        if candidates:
            ids = [candidate.chunk_id for candidate in candidates]
            await self._connection.execute(_SQL["record_served"], self._tenant, ids)

    async def _scored(self, statement: str, *arguments: object) -> ScoredChunks:
        rows = await self._connection.fetch(_SQL[statement], self._tenant, *arguments)
        return ScoredChunks({row["chunk_id"]: row["score"] for row in rows}, frozenset(row["file_id"] for row in rows))


def _paths_with(prefix: str) -> tuple[str, str] | None:
    """The half-open range of paths with this prefix; None if no valid path has it."""
    if not prefix:
        prefix = "/"
    if not (prefix.startswith("/") and prefix.isascii() and prefix.isprintable()):
        return None
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)
