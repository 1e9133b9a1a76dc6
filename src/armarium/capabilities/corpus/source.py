"""The corpus as a search source for other capabilities of the server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from anyio.to_thread import run_sync

from armarium.capabilities.corpus.query.search import Filters, SearchHit
from armarium.capabilities.corpus.service import Corpus
from armarium.foundation.refs import FileRef
from armarium.foundation.tools import Call
from armarium.retrieval.sources import Collection, SourceHit
from armarium.retrieval.spans import citation, span_as_json

_MOST = 50
"""The same limit as in the tool."""


class CorpusSource:
    """One collection, the same for every caller: the indexed directory."""

    kind = "corpus"

    def __init__(self, corpus: Corpus, name: str) -> None:
        self._corpus = corpus
        self._name = name

    async def collections(self, call: Call) -> Sequence[Collection]:
        documents, indexed_unix = await run_sync(self._corpus.resources.storage.documents.extent)
        chunks = self._corpus.stats()["indexing"]["chunks_total"]
        last_indexed = None if indexed_unix is None else datetime.fromtimestamp(indexed_unix, UTC).isoformat()
        return [Collection(self.kind, self._name, documents, chunks, last_indexed)]

    async def search(self, call: Call, collection: str, query: str, most: int) -> Sequence[SourceHit]:
        results = await self._corpus.search(query, min(most, _MOST), "auto", Filters())
        return [self._hit(hit) for hit in results.hits]

    def _hit(self, hit: SearchHit) -> SourceHit:
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
            provenance={"rel_path": chunk.rel_path, "doc_type": chunk.doc_type, "span": span_as_json(chunk.span)},
        )
