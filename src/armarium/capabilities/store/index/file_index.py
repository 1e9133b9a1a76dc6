"""The index of files: writes the terms of changed chunks at once, and their vectors when they are available."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import anyio.to_thread
import orjson

from armarium.capabilities.store.database.pool import Connection, Row
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import ResourceBusy
from armarium.capabilities.store.index.chunker import (
    CHUNKER,
    TOKENIZER,
    ByteChunk,
    ChunkTerms,
    chunk_terms,
    split_chunks,
)
from armarium.capabilities.store.index.embedders import StoreModels
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.validation import below, exactly
from armarium.foundation.sql import queries

_SQL = queries("armarium.capabilities.store.database.sql", "index.sql")

ROWS_AT_ONCE = 500
_ATTEMPTS = 4

_ChunkKey = tuple[int, int, int, str]
"""Index, first byte, end and hash of a chunk. A row with an equal key can stay."""


class _ConcurrentChange(Exception):
    """Rows that were to stay, or the file, were deleted in the meantime."""


@dataclass(frozen=True, slots=True)
class _NewChunk:
    index: int
    chunk: ByteChunk
    content_hash: str
    terms: ChunkTerms


@dataclass(frozen=True, slots=True)
class _FileChanges:
    """A file as it was read, and the changes to its index."""

    file_id: int
    version: int
    staying: frozenset[_ChunkKey]
    """Chunks whose rows exist and were created in the same way."""
    staying_embedded: bool
    """Whether all staying chunks have vectors."""
    added: Sequence[_NewChunk]
    words: int
    """Number of terms in all chunks, staying and added."""
    languages: frozenset[str]


@dataclass(frozen=True, slots=True)
class TermsWritten:
    new: bool
    """Whether the index has changed."""
    embedded: bool
    """Whether no text is left to embed."""


_Vectors = Mapping[str, str]
"""Vectors by the hashes of their texts, in the text format of pgvector."""


class FileIndex:
    """The index of all files. Any number of workers may use it concurrently, also for the same file.

    Terms are written at once; vectors, which take far longer, follow. Until then only lexical search finds a chunk.
    `mcp_file_indexed` records which files lack vectors, so that the next worker continues with them.
    """

    def __init__(self, database: StoreDatabase, models: StoreModels, *, batch: int = 256) -> None:
        self._database = database
        self._models = models
        self._batch = batch
        """Texts per call of the embedder; cancellation takes effect between calls."""
        self._complete = f"{models.model} {TOKENIZER} {CHUNKER}"
        self._words_only = f"words for {self._complete}"
        self._accepted = [self._words_only, self._complete]

    async def write_terms(self, scope: Scope, path: str) -> TermsWritten:
        """Write the terms of the current content of a file, and the vectors that the tenant already has of its texts.

        A version that was replaced in the meantime is still written, unless a later one is already indexed: otherwise a
        file under constant change would never be found.
        """
        for _ in range(_ATTEMPTS):
            changes = await self._read(scope, path)
            if isinstance(changes, TermsWritten):
                return changes
            vectors = await self._known(scope, [chunk.content_hash for chunk in changes.added])
            try:
                return await self._replace(scope, path, changes, vectors)
            except _ConcurrentChange:
                continue
        raise ResourceBusy("others are indexing this file", hint="try again in a moment")

    async def embed(self, scope: Scope, path: str, key: str | None, *, most: int | None = None) -> bool:
        """Embed at most `most` texts of a file that lack vectors; `key` is the caller's, for an endpoint that needs it.

        Returns whether no text is left to embed. No transaction is open during calls of the embedder, and vectors are
        stored after each call.
        """
        async with self._database.read_transaction(scope.apikey_hash) as connection:
            where = (*scope, path, self._models.model, self._words_only)
            rows = await connection.fetch(_SQL["chunks_without_vectors"], *where)
        if not rows:
            return True
        file_id: int = rows[0]["file_id"]
        texts = {row["content_hash"]: row["chunk_content"] for row in rows if row["content_hash"] is not None}
        known = await self._known(scope, list(texts))
        if known or not texts:
            await self._add_vectors(scope, path, file_id, known)
        missing = [content_hash for content_hash in texts if content_hash not in known]
        wanted = missing[:most]
        if wanted:
            async with self._models.embedder(key) as embedder:
                for start in range(0, len(wanted), self._batch):
                    hashes = wanted[start : start + self._batch]
                    vectors = await embedder.embed([texts[content_hash] for content_hash in hashes])
                    await self._add_vectors(
                        scope, path, file_id, dict(zip(hashes, map(_as_text, vectors), strict=True))
                    )
        return len(wanted) == len(missing)

    async def forget(self, scope: Scope, path: str) -> None:
        """Remove the index of a deleted file. Has no effect on files that exist, also under another path."""
        async with self._database.write_transaction(scope.apikey_hash) as connection:
            await connection.execute(_SQL["lock_path"], _path_lock(scope, path))
            await connection.execute(_SQL["delete_chunks_of_deleted"], *scope, path)

    async def follow(self, scope: Scope, path: str, credential_ref: str | None) -> int:
        """Update the index after a rename of a file or a directory to a path. Returns the number of files queued.

        Files whose current version is completely indexed stay indexed. The others are queued with the reference to the
        caller's key. Idempotent, so it can be repeated after an interruption.
        """
        await self.forget(scope, path)
        queued = 0
        for first, end in (exactly(path), below(path)):
            async with self._database.write_transaction(scope.apikey_hash) as connection:
                moved = (*scope, first, end, credential_ref, self._complete)
                queued += await connection.fetchval(_SQL["queue_moved"], *moved)
            await self._correct_paths(scope, first, end)
        return queued

    async def _correct_paths(self, scope: Scope, first: str, end: str) -> None:
        tenant = scope.apikey_hash
        while True:
            async with self._database.write_transaction(tenant) as connection:
                files = await connection.fetch(_SQL["moved_files"], *scope, first, end, ROWS_AT_ONCE)
                ids = [file["id"] for file in files]
                await connection.execute(_SQL["lock_moved"], tenant, ids)
                await connection.execute(_SQL["follow_moved"], tenant, ids)
            if len(files) < ROWS_AT_ONCE:
                return
            _, first = exactly(files[-1]["path"])

    async def _read(self, scope: Scope, path: str) -> _FileChanges | TermsWritten:
        """Compare a file with its index. Returns the changes to write, or the result if there are none. Removes the
        index of a deleted file."""
        async with self._database.read_transaction(scope.apikey_hash) as connection:
            file = await connection.fetchrow(_SQL["file_to_index"], *scope, path, self._accepted)
            there: Sequence[Row] = []
            if file and file["content"] is not None and file["made_with"] in self._accepted:
                of_file = (scope.apikey_hash, file["id"], self._models.model)
                there = await connection.fetch(_SQL["chunks_of_file"], *of_file)
        if file is None or file["content"] is None:
            # Also if the file is indexed: the job may replace one that was to remove the chunks of a file deleted at
            # this path.
            await self.forget(scope, path)
            return TermsWritten(new=False, embedded=file is None or file["made_with"] == self._complete)
        # In a thread: ten megabytes take seconds to split and analyse.
        return await anyio.to_thread.run_sync(_file_changes, file, there, abandon_on_cancel=True)

    async def _known(self, scope: Scope, hashes: Sequence[str]) -> _Vectors:
        """The stored vectors of the texts with these hashes."""
        if not hashes:
            return {}
        async with self._database.read_transaction(scope.apikey_hash) as connection:
            rows = await connection.fetch(_SQL["vectors_of_texts"], scope.apikey_hash, hashes, self._models.model)
        return {row["content_hash"]: row["embedding"] for row in rows}

    async def _add_vectors(self, scope: Scope, path: str, file_id: int, vectors: _Vectors) -> None:
        async with self._database.write_transaction(scope.apikey_hash) as connection:
            await connection.execute(_SQL["lock_path"], _path_lock(scope, path))
            if await connection.fetchval(_SQL["lock_indexed"], scope.apikey_hash, file_id) is None:
                return
            added = (file_id, self._models.model, list(vectors), list(vectors.values()))
            await connection.execute(_SQL["add_vectors"], *scope, *added)
            await self._mark_embedded(connection, scope, file_id)

    async def _mark_embedded(self, connection: Connection, scope: Scope, file_id: int) -> bool:
        """Mark the file as completely indexed if no chunk lacks its vector. Returns whether it did."""
        noted = await connection.fetchval(
            _SQL["mark_embedded"], scope.apikey_hash, file_id, self._models.model, self._words_only, self._complete
        )
        return noted is not None

    async def _replace(self, scope: Scope, path: str, changes: _FileChanges, vectors: _Vectors) -> TermsWritten:
        tenant = scope.apikey_hash
        async with self._database.write_transaction(tenant) as connection:
            await connection.execute(_SQL["lock_path"], _path_lock(scope, path))
            chunks = len(changes.staying) + len(changes.added)
            sums = (self._words_only, chunks, changes.words, sorted(changes.languages))
            begun = (*scope, changes.file_id, changes.version, *sums, self._accepted)
            if await connection.fetchval(_SQL["begin_replacing"], *begun) is None:
                return TermsWritten(new=False, embedded=False)
            rows = await connection.fetch(_SQL["chunks_to_replace"], *scope, changes.file_id, path)
            staying = {
                row["id"]: row
                for row in rows
                if row["file_id"] == changes.file_id and _chunk_key(row) in changes.staying
            }
            if len(staying) != len(changes.staying):
                raise _ConcurrentChange
            gone = [row["id"] for row in rows if row["id"] not in staying]
            if gone:
                await connection.execute(_SQL["drop_chunks"], tenant, gone)
            moved = [chunk_id for chunk_id, row in staying.items() if row["file_path"] != path]
            if moved:
                await connection.execute(_SQL["move_chunks"], tenant, moved, path)
            for start in range(0, len(changes.added), ROWS_AT_ONCE):
                added = changes.added[start : start + ROWS_AT_ONCE]
                await self._add(connection, scope, path, changes.file_id, added, vectors)
            embedded = changes.staying_embedded and all(chunk.content_hash in vectors for chunk in changes.added)
            if embedded:
                embedded = await self._mark_embedded(connection, scope, changes.file_id)
            if await connection.fetchval(_SQL["lock_file"], tenant, changes.file_id) is None:
                raise _ConcurrentChange
            return TermsWritten(new=True, embedded=embedded)

    async def _add(
        self,
        connection: Connection,
        scope: Scope,
        path: str,
        file_id: int,
        chunks: Sequence[_NewChunk],
        vectors: _Vectors,
    ) -> None:
        await connection.execute(
            _SQL["add_chunks"],
            *scope,
            path,
            file_id,
            self._models.model,
            [chunk.index for chunk in chunks],
            [chunk.chunk.start for chunk in chunks],
            [chunk.chunk.end for chunk in chunks],
            [chunk.chunk.text for chunk in chunks],
            [chunk.content_hash for chunk in chunks],
            [vectors.get(chunk.content_hash) for chunk in chunks],
            [orjson.dumps(chunk.terms.counts).decode() for chunk in chunks],
            [chunk.terms.length for chunk in chunks],
            TOKENIZER,
        )


def _as_text(vector: object) -> str:
    return orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def _file_changes(file: Row, there: Sequence[Row]) -> _FileChanges:
    """The changes from the stored rows to the current content of a file."""
    rows = {_chunk_key(row): row for row in there}
    staying: set[_ChunkKey] = set()
    added: list[_NewChunk] = []
    for index, chunk in enumerate(split_chunks(file["content"])):
        content_hash = hashlib.sha256(chunk.text.encode()).hexdigest()
        place = (index, chunk.start, chunk.end, content_hash)
        if place in rows:
            staying.add(place)
        else:
            added.append(_NewChunk(index, chunk, content_hash, chunk_terms(chunk.text)))
    words = sum(rows[place]["token_count"] for place in staying) + sum(chunk.terms.length for chunk in added)
    languages = {chunk.terms.language for chunk in added} | set(file["languages"] if staying else ())
    return _FileChanges(
        file_id=file["id"],
        version=file["version"],
        staying=frozenset(staying),
        staying_embedded=all(rows[place]["embedded"] for place in staying),
        added=added,
        words=words,
        languages=frozenset(languages),
    )


def _chunk_key(row: Row) -> _ChunkKey:
    return (row["chunk_index"], row["start_byte"], row["end_byte"], row["content_hash"])


def _path_lock(scope: Scope, path: str) -> int:
    """The advisory lock key of a path while its chunks are replaced; the project's lock would block writes."""
    name = f"index:{scope.apikey_hash}:{scope.project}:{path}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
