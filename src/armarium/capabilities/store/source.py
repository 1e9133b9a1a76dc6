"""The store as a search source for other capabilities: each project of a caller is a collection."""

from __future__ import annotations

from collections.abc import Sequence

from armarium.capabilities.store.model import Chunk
from armarium.capabilities.store.service import Store
from armarium.foundation.refs import FileRef
from armarium.foundation.tools import Call
from armarium.retrieval.sources import Collection, SourceHit

_SNIPPET_CHARS = 400


class StoreSource:
    kind = "store"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def collections(self, call: Call) -> Sequence[Collection]:
        return await self._store.indexed_projects(call)

    async def search(self, call: Call, collection: str, query: str, most: int) -> Sequence[SourceHit]:
        project = collection.removeprefix(f"{self.kind}:")
        found = await self._store.find_chunks(call, project, query, limit=most)
        return [_hit(collection, chunk) for chunk in found["chunks"]]


def _hit(collection: str, chunk: Chunk) -> SourceHit:
    project, path, text = chunk["project"], chunk["file_path"], chunk["chunk_content"]
    start, end = chunk["file_seek_start_bytes"], chunk["file_seek_end_bytes"]
    name = path.removeprefix("/")
    return SourceHit(
        id=f"{project}{path}@{start}-{end}",
        collection=collection,
        score=chunk["score"],
        text=text,
        snippet=text[:_SNIPPET_CHARS],
        title=name,
        uri=str(FileRef("store", project, name)),
        citation=f"[{project}/{name}@{start}-{end}]",
        provenance={"project": project, "path": path, "start_byte": start, "end_byte": end},
    )
