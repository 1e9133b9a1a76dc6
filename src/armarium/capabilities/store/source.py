"""The store as a search source for other capabilities: each project of a caller is a collection."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from armarium.capabilities.store.files.listings import WAITS_FOR_INDEX
from armarium.capabilities.store.model import Chunk
from armarium.capabilities.store.service import Store
from armarium.foundation.refs import FileRef
from armarium.foundation.tools import Call
from armarium.retrieval.sources import NO_FILTERS, Collection, SourceFilters, SourceHit, SourceHits

_SNIPPET_CHARS = 400


class StoreSource:
    kind = "store"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def collections(self, call: Call) -> Sequence[Collection]:
        return await self._store.indexed_projects(call)

    async def search(
        self, call: Call, collection: str, query: str, most: int, filters: SourceFilters = NO_FILTERS
    ) -> SourceHits:
        """A caller owns all files of their projects. A file has a modification time, and no tags. Dates select from the
        best chunks that one search may return."""
        if filters.tags:
            return SourceHits((), ["tags"])
        if filters.owners and call.principal.username not in filters.owners:
            return SourceHits(())
        project = collection.removeprefix(f"{self.kind}:")
        is_dated = filters.date_from is not None or filters.date_to is not None
        most = min(most, self._store.max_chunks)
        asked = self._store.max_chunks if is_dated else most
        found = await self._store.find_chunks(call, project, query, limit=asked)
        paths = {chunk["file_path"] for chunk in found["chunks"]}
        modified, waits_for_index = await self._store.modification_times(call, project, paths)
        hits = [_hit(collection, chunk, modified.get(chunk["file_path"])) for chunk in found["chunks"]]
        selected = [hit for hit in hits if not is_dated or _is_within(hit.modified, filters)][:most]
        reasons = [WAITS_FOR_INDEX] if waits_for_index else []
        if is_dated and len(hits) == asked and len(selected) < most:
            reasons.append(f"dates were applied to the best {asked} chunks only")
        return SourceHits(selected, incomplete="; ".join(reasons) or None)


def _is_within(modified: datetime | None, filters: SourceFilters) -> bool:
    if modified is None:
        return False
    first, last = filters.date_from, filters.date_to
    return (first is None or modified >= first) and (last is None or modified <= last)


def _hit(collection: str, chunk: Chunk, modified: datetime | None) -> SourceHit:
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
        modified=modified,
        citation=f"[{project}/{name}@{start}-{end}]",
        provenance={"project": project, "path": path, "start_byte": start, "end_byte": end},
    )
