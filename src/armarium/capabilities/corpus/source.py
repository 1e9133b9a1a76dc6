"""The corpus as a search source for other capabilities of the server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from anyio.to_thread import run_sync

from armarium.capabilities.corpus.query.search import Filters, SearchHit
from armarium.capabilities.corpus.service import Corpus
from armarium.foundation.refs import FileRef
from armarium.foundation.security.access import READ, Access
from armarium.foundation.tools import Call
from armarium.retrieval.sources import NO_FILTERS, Collection, SourceFilters, SourceHit, SourceHits
from armarium.retrieval.spans import citation, span_as_json

_MOST = 50
"""The same limit as in the tool."""

_EPOCH = datetime.fromtimestamp(0, UTC)
_FIRST, _LAST = -(2**63), 2**63 - 1
"""The smallest and the largest integer of SQLite."""


class CorpusSource:
    """One collection, the same for every caller who may read the corpus: the indexed directory."""

    kind = "corpus"

    def __init__(self, corpus: Corpus, name: str, access: Access) -> None:
        self._corpus = corpus
        self._name = name
        self._access = access

    async def collections(self, call: Call) -> Sequence[Collection]:
        if not self._access.admits(call.principal, READ):
            return []
        documents, indexed_unix = await run_sync(self._corpus.resources.storage.documents.extent)
        chunks = self._corpus.stats()["indexing"]["chunks_total"]
        last_indexed = None if indexed_unix is None else datetime.fromtimestamp(indexed_unix, UTC).isoformat()
        return [Collection(self.kind, self._name, documents, chunks, last_indexed, self._incomplete)]

    async def search(
        self, call: Call, collection: str, query: str, most: int, filters: SourceFilters = NO_FILTERS
    ) -> SourceHits:
        """A document has a modification time, but neither tags nor an owner."""
        self._access.require_role(call.principal, READ)
        if unmet := [name for name, wanted in (("tags", filters.tags), ("owners", filters.owners)) if wanted]:
            return SourceHits((), unmet)
        # Before the search, which may take until the index is complete.
        incomplete = self._incomplete
        modified = None
        if filters.date_from or filters.date_to:
            modified = _nanoseconds(filters.date_from, _FIRST), _nanoseconds(filters.date_to, _LAST)
        results = await self._corpus.search(query, min(most, _MOST), "auto", Filters(modified_ns=modified))
        paths = list({hit.chunk.rel_path for hit in results.hits})
        times = await run_sync(self._corpus.resources.storage.documents.modification_times, paths)
        hits = [self._hit(hit, times.get(hit.chunk.rel_path)) for hit in results.hits]
        return SourceHits(hits, incomplete=incomplete)

    @property
    def _incomplete(self) -> str | None:
        return None if self._corpus.indexing_complete else "indexing is still under way"

    def _hit(self, hit: SearchHit, mtime_ns: int | None) -> SourceHit:
        chunk = hit.chunk
        return SourceHit(
            id=str(chunk.chunk_id),
            collection=self.kind,
            score=hit.score,
            text=chunk.text,
            snippet=hit.snippet,
            title=chunk.rel_path,
            uri=str(FileRef("corpus", self._name, chunk.rel_path)),
            citation=citation(chunk.rel_path, chunk.span),
            is_code=chunk.doc_type == "code",
            modified=None if mtime_ns is None else datetime.fromtimestamp(mtime_ns // 1_000_000_000, UTC),
            provenance={"rel_path": chunk.rel_path, "doc_type": chunk.doc_type, "span": span_as_json(chunk.span)},
        )


def _nanoseconds(moment: datetime | None, default: int) -> int:
    if moment is None:
        return default
    return max(_FIRST, min((moment - _EPOCH) // timedelta(microseconds=1) * 1000, _LAST))
