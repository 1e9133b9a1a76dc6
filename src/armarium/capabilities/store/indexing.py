"""Makes a file findable: passages, their vectors and their words, replaced together and only where they changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio.to_thread
import orjson

from armarium.capabilities.store.chunker import CHUNKER, Chunk, chunks
from armarium.capabilities.store.database import Connection, Database, Row
from armarium.capabilities.store.errors import ResourceBusy
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.models import StoreModels
from armarium.capabilities.store.tokens import TOKENIZER, PassageTerms, passage_terms
from armarium.foundation.sql import queries
from armarium.providers.interfaces import Embedder

_SQL = queries("armarium.capabilities.store.sql", "index.sql")

EMBEDDED_AT_ONCE: Final = 256
"""Texts given to the embedder together; in between a cancelled indexing ends."""
_ROWS_AT_ONCE = 500
_ATTEMPTS = 4

_Place = tuple[int, int, int, str]
"""Index, first byte, end and hash of a passage: when all are the same, its row can stay."""


class _MovedMeanwhile(Exception):
    """Rows that were to stay are gone."""


@dataclass(frozen=True, slots=True)
class _Passage:
    index: int
    chunk: Chunk
    content_hash: str
    terms: PassageTerms


@dataclass(frozen=True, slots=True)
class _Reading:
    """A file as it was read, and what is to be done about it."""

    file_id: int
    version: int
    staying: frozenset[_Place]
    """Passages whose rows are there already, made in the same way."""
    added: Sequence[_Passage]
    words: int
    """In all passages together, those that stay and those that are added."""
    languages: frozenset[str]


class FileIndex:
    """The index of all files. Any number of workers may use it at once, for the same file too."""

    def __init__(self, database: Database, models: StoreModels) -> None:
        self._database = database
        self._models = models
        self._made_with = f"{models.model} {TOKENIZER} {CHUNKER}"

    async def index(self, scope: Scope, path: str, key: str | None) -> None:
        """Bring the index of a file to what the file is now; `key` is the caller's own, for an endpoint that wants one.

        No transaction is open while texts are embedded. A version that others overtook meanwhile is written all the
        same, unless a later one was indexed first: a file that is written to all the time would else never be found.
        """
        for _ in range(_ATTEMPTS):
            reading = await self._read(scope, path)
            if reading is None:
                return
            vectors = await self._vectors(scope, reading.added, key)
            try:
                await self._replace(scope, path, reading, vectors)
            except _MovedMeanwhile:
                continue
            return
        raise ResourceBusy("others are indexing this file", hint="try again in a moment")

    async def forget(self, scope: Scope, path: str) -> None:
        """Drop what is left of a file that is gone. Nothing happens to one that is there, here or after a rename."""
        async with self._database.writing(scope.apikey_hash) as connection:
            await connection.execute(_SQL["lock_path"], _path_lock(scope, path))
            await connection.execute(_SQL["forget_passages"], scope.apikey_hash, scope.project, path)

    async def _read(self, scope: Scope, path: str) -> _Reading | None:
        """The file and what of it is indexed; None when there is nothing to do, after forgetting one that is gone."""
        async with self._database.reading(scope.apikey_hash) as connection:
            file = await connection.fetchrow(
                _SQL["file_to_index"], scope.apikey_hash, scope.project, path, self._made_with
            )
            there: Sequence[Row] = []
            if file is not None and file["content"] is not None and file["made_with"] == self._made_with:
                there = await connection.fetch(_SQL["passages_of_file"], scope.apikey_hash, file["id"])
        if file is None:
            await self.forget(scope, path)
            return None
        if file["content"] is None:
            return None
        # Ten megabytes take seconds to cut and count, which everybody else in this process would wait for.
        return await anyio.to_thread.run_sync(_reading, file, there, abandon_on_cancel=True)

    async def _vectors(self, scope: Scope, passages: Sequence[_Passage], key: str | None) -> dict[str, str]:
        """The vector of each text by its hash, written as the database reads it: those it has already, and new ones."""
        texts = {passage.content_hash: passage.chunk.text for passage in passages}
        if not texts:
            return {}
        async with self._database.reading(scope.apikey_hash) as connection:
            rows = await connection.fetch(_SQL["vectors_of_texts"], scope.apikey_hash, list(texts), self._models.model)
        vectors: dict[str, str] = {row["content_hash"]: row["embedding"] for row in rows}
        missing = [content_hash for content_hash in texts if content_hash not in vectors]
        if missing:
            async with self._models.embedder(key) as embedder:
                for start in range(0, len(missing), EMBEDDED_AT_ONCE):
                    hashes = missing[start : start + EMBEDDED_AT_ONCE]
                    vectors |= zip(hashes, await _embedded(embedder, [texts[each] for each in hashes]), strict=True)
        return vectors

    async def _replace(self, scope: Scope, path: str, reading: _Reading, vectors: Mapping[str, str]) -> None:
        tenant, project = scope.apikey_hash, scope.project
        async with self._database.writing(tenant) as connection:
            await connection.execute(_SQL["lock_path"], _path_lock(scope, path))
            if not await self._begin(connection, scope, reading):
                return
            rows = await connection.fetch(_SQL["passages_in_the_way"], tenant, project, reading.file_id, path)
            staying = {
                row["id"]: row for row in rows if row["file_id"] == reading.file_id and _place(row) in reading.staying
            }
            if len(staying) != len(reading.staying):
                raise _MovedMeanwhile
            gone = [row["id"] for row in rows if row["id"] not in staying]
            if gone:
                await connection.execute(_SQL["drop_passages"], tenant, gone)
            moved = [chunk_id for chunk_id, row in staying.items() if row["file_path"] != path]
            if moved:
                await connection.execute(_SQL["move_passages"], tenant, moved, path)
            for start in range(0, len(reading.added), _ROWS_AT_ONCE):
                added = reading.added[start : start + _ROWS_AT_ONCE]
                await self._add(connection, scope, path, reading.file_id, added, vectors)

    async def _begin(self, connection: Connection, scope: Scope, reading: _Reading) -> bool:
        begun = await connection.fetchval(
            _SQL["begin_replacing"],
            scope.apikey_hash,
            scope.project,
            reading.file_id,
            reading.version,
            self._made_with,
            len(reading.staying) + len(reading.added),
            reading.words,
            sorted(reading.languages),
        )
        return begun is not None

    async def _add(
        self,
        connection: Connection,
        scope: Scope,
        path: str,
        file_id: int,
        passages: Sequence[_Passage],
        vectors: Mapping[str, str],
    ) -> None:
        await connection.execute(
            _SQL["add_passages"],
            scope.apikey_hash,
            scope.project,
            path,
            file_id,
            self._models.model,
            [passage.index for passage in passages],
            [passage.chunk.start for passage in passages],
            [passage.chunk.end for passage in passages],
            [passage.chunk.text for passage in passages],
            [passage.content_hash for passage in passages],
            [vectors[passage.content_hash] for passage in passages],
            [orjson.dumps(passage.terms.counts).decode() for passage in passages],
            [passage.terms.length for passage in passages],
            TOKENIZER,
        )


async def _embedded(embedder: Embedder, texts: Sequence[str]) -> list[str]:
    vectors = await embedder.embed(texts)
    write = partial(orjson.dumps, option=orjson.OPT_SERIALIZE_NUMPY)
    return [write(vector).decode() for vector in vectors]


def _reading(file: Row, there: Sequence[Row]) -> _Reading:
    """What has changed since the rows were written that are there."""
    words_of = {_place(row): row["token_count"] for row in there}
    staying: set[_Place] = set()
    added: list[_Passage] = []
    for index, chunk in enumerate(chunks(file["content"])):
        content_hash = hashlib.sha256(chunk.text.encode()).hexdigest()
        place = (index, chunk.start, chunk.end, content_hash)
        if place in words_of:
            staying.add(place)
        else:
            added.append(_Passage(index, chunk, content_hash, passage_terms(chunk.text)))
    words = sum(words_of[place] for place in staying) + sum(passage.terms.length for passage in added)
    languages = {passage.terms.language for passage in added} | set(file["languages"] if staying else ())
    return _Reading(file["id"], file["version"], frozenset(staying), added, words, frozenset(languages))


def _place(row: Row) -> _Place:
    return (row["chunk_index"], row["start_byte"], row["end_byte"], row["content_hash"])


def _path_lock(scope: Scope, path: str) -> int:
    """The number of a path's lock while its passages are replaced; not the project's, so that writers go on."""
    name = f"index:{scope.apikey_hash}:{scope.project}:{path}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
