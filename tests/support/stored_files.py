"""Files put into the store's tables directly, and an embedder whose vectors are the words of a text."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy
from numpy.typing import NDArray

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.index.file_index import FileIndex
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.settings import LOCAL_DIMENSIONS
from armarium.providers.errors import ProviderError


class StoredFiles:
    """Changes the files of one project as the store's own statements would: each change has a version of its own."""

    def __init__(self, database: StoreDatabase, scope: Scope) -> None:
        self._database = database
        self.scope = scope
        self._version = 0

    async def write(self, path: str, content: str | bytes) -> None:
        """Make a file, or give it another content."""
        as_bytes = content.encode() if isinstance(content, str) else content
        await self._change(
            """
            INSERT INTO mcp_files (apikey_hash, project, path, content, size, version)
            VALUES ($1, $2, $3, $5::bytea, octet_length($5::bytea), $4)
            ON CONFLICT (apikey_hash, project, path) WHERE deleted = FALSE
            DO UPDATE SET content = excluded.content, size = excluded.size, version = excluded.version
            """,
            path,
            as_bytes,
        )

    async def delete(self, path: str) -> None:
        """Take a file away."""
        await self._change(
            """
            UPDATE mcp_files SET deleted = TRUE, deleted_at = now(), version = $4
            WHERE apikey_hash = $1 AND project = $2 AND path = $3 AND deleted = FALSE
            """,
            path,
        )

    async def rename(self, path: str, new_path: str) -> None:
        """Give a file another path."""
        await self._change(
            """
            UPDATE mcp_files SET path = $5, version = $4
            WHERE apikey_hash = $1 AND project = $2 AND path = $3 AND deleted = FALSE
            """,
            path,
            new_path,
        )

    async def _change(self, statement: str, path: str, *more: object) -> None:
        self._version += 1
        async with self._database.project_transaction(self.scope) as connection:
            await connection.execute(statement, self.scope.apikey_hash, self.scope.project, path, self._version, *more)


async def index_file(index: FileIndex, scope: Scope, path: str, key: str | None = None) -> None:
    """Write the terms of a file and then its vectors, as a worker does it."""
    if not (await index.write_terms(scope, path)).embedded:
        await index.embed(scope, path, key)


class WordVectors:
    """Texts are as near as they have words in common. Remembers what it was asked, and fails when it is told to."""

    model = "words"
    dimensions = LOCAL_DIMENSIONS

    def __init__(self) -> None:
        self.embedded: list[str] = []
        self.failure: ProviderError | None = None

    async def embed(self, texts: Sequence[str]) -> NDArray[numpy.float32]:
        """The vectors of chunks."""
        self.embedded += texts
        return numpy.array([self._vector(text) for text in texts], numpy.float32)

    async def embed_query(self, text: str) -> NDArray[numpy.float32]:
        """The vector of a question."""
        return self._vector(text)

    async def aclose(self) -> None:
        """Nothing is held."""

    def _vector(self, text: str) -> NDArray[numpy.float32]:
        if self.failure is not None:
            raise self.failure
        vector = numpy.full(self.dimensions, 1e-3, numpy.float32)
        for word in re.findall(r"\w+", text.lower()):
            vector[zlib.crc32(word.encode()) % self.dimensions] += 1
        return vector / numpy.linalg.norm(vector)
