"""The in-memory catalogue of documents and chunks, which answers filters and knows which chunks are deleted."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from armarium.capabilities.corpus.storage.checks import chunks_tally, document_mark, tally
from armarium.capabilities.corpus.storage.errors import damaged_error
from armarium.foundation.files.glob_patterns import path_matcher
from armarium.retrieval.chunks import IndexKind

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Ids = NDArray[numpy.int64]

_GONE = -1
_GROWTH = 1.5
_FIRST_SIZE = 1024


class Catalogue:
    """All live documents and chunks. One thread writes, any number of threads read."""

    def __init__(self) -> None:
        import numpy

        self._documents: dict[int, tuple[str, str]] = {}
        self._document_of: NDArray[numpy.int32] = numpy.full(_FIRST_SIZE, _GONE, dtype=numpy.int32)
        self._is_code: NDArray[numpy.bool_] = numpy.zeros(_FIRST_SIZE, dtype=numpy.bool_)
        self.chunks: dict[IndexKind, int] = {"text": 0, "code": 0}
        """The number of live chunks of each kind."""

    def load(
        self,
        documents: Collection[tuple[int, str, str]],
        chunks: Collection[tuple[int, int, int]],
        tallies: tuple[str, str] | None = None,
    ) -> None:
        """Load the rows of the storage. Raises `StoreCorrupt` if they do not match the tallies."""
        import numpy

        try:
            rows = numpy.fromiter((each for row in chunks for each in row), numpy.int64, 3 * len(chunks)).reshape(-1, 3)
        except (TypeError, ValueError, OverflowError) as error:
            raise damaged_error("the list of chunks") from error
        # Checked before the numbers are used: a damaged one may have any size.
        if tallies is not None:
            if tally(sum(document_mark(*document) for document in documents)) != tallies[0]:
                raise damaged_error("the list of documents")
            if tally(chunks_tally(rows)) != tallies[1]:
                raise damaged_error("the list of chunks")
        self._documents = {doc_id: (rel_path, doc_type) for doc_id, rel_path, doc_type in documents}
        if not chunks:
            return
        self._reserve(int(rows[-1, 0]))
        self._document_of[rows[:, 0]] = rows[:, 1]
        self._is_code[rows[:, 0]] = rows[:, 2] == 1
        code = int((rows[:, 2] == 1).sum())
        self.chunks = {"text": len(chunks) - code, "code": code}

    @property
    def room(self) -> int:
        """A number greater than every chunk id."""
        return len(self._document_of)

    def put_document(self, doc_id: int, rel_path: str, doc_type: str) -> None:
        self._documents[doc_id] = (rel_path, doc_type)

    def drop_document(self, doc_id: int) -> None:
        """Remove a document. Its chunks are removed one by one."""
        self._documents.pop(doc_id, None)

    def put_chunk(self, chunk_id: int, doc_id: int, kind: IndexKind) -> None:
        self._reserve(chunk_id)
        self._is_code[chunk_id] = kind == "code"
        self._document_of[chunk_id] = doc_id
        self.chunks[kind] += 1

    def drop_chunk(self, chunk_id: int) -> None:
        """Remove a chunk. Searches ignore it from now on, even if the indexes still contain it."""
        if chunk_id < len(self._document_of) and self._document_of[chunk_id] != _GONE:
            self._document_of[chunk_id] = _GONE
            self.chunks["code" if self._is_code[chunk_id] else "text"] -= 1

    def documents(
        self, path_prefix: str | None, file_glob: str | None, doc_types: Collection[str] | None
    ) -> set[int] | None:
        """The documents that pass every filter, or None if there is no filter."""
        if not path_prefix and not file_glob and not doc_types:
            return None
        fits = path_matcher(file_glob) if file_glob else None
        wanted = frozenset(doc_types or ())
        return {
            doc_id
            for doc_id, (rel_path, doc_type) in list(self._documents.items())
            if (not path_prefix or rel_path.startswith(path_prefix))
            and (not wanted or doc_type in wanted)
            and (fits is None or fits(rel_path))
        }

    def alive(self, ids: Ids) -> NDArray[numpy.bool_]:
        """Which of the ids are live chunks."""
        document_of = self._document_of
        known = ids < len(document_of)
        known[known] = document_of[ids[known]] != _GONE
        return known

    def chunks_of(self, documents: Collection[int]) -> Ids:
        import numpy

        # A copy: a chunk recorded meanwhile may belong to a document with a higher id.
        document_of = self._document_of.copy()
        chosen = numpy.zeros(int(document_of.max(initial=0)) + 2, dtype=numpy.bool_)  # the last one is for _GONE
        ids = numpy.fromiter(documents, numpy.int64, len(documents))
        chosen[ids[ids < len(chosen) - 1]] = True
        return numpy.flatnonzero(chosen[document_of]).astype(numpy.int64)

    def kinds(self) -> set[IndexKind]:
        return {kind for kind, count in self.chunks.items() if count}

    def kinds_of(self, chunks: Ids) -> set[IndexKind]:
        code = self._is_code[chunks]
        found: dict[IndexKind, bool] = {"code": bool(code.any()), "text": not code.all()}
        return {kind for kind, is_found in found.items() if is_found}

    def _reserve(self, chunk_id: int) -> None:
        size = len(self._document_of)
        if chunk_id < size:
            return
        import numpy

        grown = max(chunk_id + 1, int(size * _GROWTH))
        is_code = numpy.zeros(grown, dtype=numpy.bool_)
        is_code[:size] = self._is_code
        document_of = numpy.full(grown, _GONE, dtype=numpy.int32)
        document_of[:size] = self._document_of
        # In this order: a reader must see the longer array only when both exist.
        self._is_code = is_code
        self._document_of = document_of
