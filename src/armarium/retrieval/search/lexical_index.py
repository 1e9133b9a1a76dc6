"""The lexical index: BM25 over chunks, on disk, searchable while it grows."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from armarium.foundation.errors import ArmariumError
from armarium.foundation.surrogates import replace_unpaired_surrogates
from armarium.retrieval.chunks import IndexKind
from armarium.retrieval.errors import DamagedIndex, IndexBusy
from armarium.retrieval.search.fusion import Ranking, empty_ranking
from armarium.retrieval.search.terms import index_text, is_lone_character, language_of, stop_words_for, term_analyzer

if TYPE_CHECKING:
    import tantivy

_FORMAT: Final = "1"
"""Incremented whenever terms are split, stemmed or stored differently: an index in another format is rebuilt."""
_FORMAT_FILE: Final = "format"

_WRITER_HEAP_BYTES: Final = 24_000_000
_MAX_QUERY_TERMS: Final = 512
_BIGRAMS_PER_CHARACTER: Final = 16

# The body field contains the title, so this is the additional weight of terms in the title. Measured: 0.25 to 0.5 are
# equally good, and separate title and body fields are worse.
_TITLE_BOOST: Final = 0.3
# Up to this many documents, tantivy filters by id. Above, enough hits pass the filter in a longer result list.
_MAX_FILTERED_DOCUMENTS: Final = 2000
_OVERSAMPLING: Final = 5
_MAX_OVERSAMPLED_HITS: Final = 20_000


@dataclass(frozen=True, slots=True)
class LexicalChunk:
    """A chunk to index. Its text is stored elsewhere."""

    chunk_id: int
    doc_id: int
    kind: IndexKind
    title: str
    """The words of its path, and the title of its document."""
    context: str
    """The headings or definitions above it."""
    text: str


class LexicalIndex:
    """An inverted index of chunks. Threads may search while one adds; additions are visible after `commit`."""

    def __init__(self, directory: Path, *, max_oversampled_hits: int = _MAX_OVERSAMPLED_HITS) -> None:
        self._max_oversampled_hits = max_oversampled_hits
        self._writing = threading.Lock()
        self._writer: tantivy.IndexWriter | None = None
        with _damaged_if_unreadable():
            self._index = _opened(directory)
            self._index.register_tokenizer("words", term_analyzer("english"))
            self._renew_searcher()

    @classmethod
    def open(cls, directory: Path, *, max_oversampled_hits: int = _MAX_OVERSAMPLED_HITS) -> LexicalIndex:
        """Open the index in `directory`, or create it. Raises `DamagedIndex` when it must be rebuilt."""
        version = directory / _FORMAT_FILE
        if not directory.is_dir() or not any(directory.iterdir()):
            directory.mkdir(parents=True, exist_ok=True)
            version.write_text(_FORMAT)
        elif not version.is_file() or version.read_text(errors="replace") != _FORMAT:
            raise DamagedIndex("the lexical index has another format version", hint="it is rebuilt automatically")
        return cls(directory, max_oversampled_hits=max_oversampled_hits)

    def __len__(self) -> int:
        return self._searcher.num_docs

    def add(self, chunks: Iterable[LexicalChunk]) -> None:
        """Add chunks. They are found after the next `commit`."""
        import tantivy

        with self._written() as writer:
            for chunk in chunks:
                language = "english" if chunk.kind == "code" else language_of(chunk.text)
                body = index_text(f"{chunk.title}\n{chunk.context}\n{chunk.text}")
                title = index_text(f"{chunk.title} {chunk.context}")
                writer.add_document(
                    tantivy.Document(
                        chunk=chunk.chunk_id,
                        document=chunk.doc_id,
                        kind=chunk.kind,
                        language=language,
                        title=_stemmed(title, language),
                        body=_stemmed(body, language),
                    )
                )

    def remove(self, chunk_ids: Iterable[int]) -> None:
        """Remove chunks. They are found until the next `commit`."""
        with self._written() as writer:
            for chunk_id in chunk_ids:
                writer.delete_documents_by_term("chunk", chunk_id)

    def commit(self) -> None:
        """Make additions and removals durable and visible."""
        with self._written() as writer:
            writer.commit()
            self._renew_searcher()

    def close(self) -> None:
        """Release the index to other processes. Uncommitted changes are lost."""
        with self._writing:
            self._writer = None

    def search(
        self, query: str, k: int, *, kind: IndexKind | None = None, documents: Collection[int] | None = None
    ) -> Ranking:
        """The `k` best chunks for the query, optionally of one kind and of `documents` only."""
        import numpy

        searcher = self._searcher
        with _damaged_if_unreadable():
            terms = self._query(searcher, query)
            if terms is None or not searcher.num_docs or (documents is not None and not documents):
                return empty_ranking()
            hits = None
            if documents is not None and len(documents) > _MAX_FILTERED_DOCUMENTS:
                hits = self._picked(searcher, self._restricted(terms, kind, None), k, documents)
            if hits is None:
                hits = searcher.search(self._restricted(terms, kind, documents), k, count=False).hits
            ids = searcher.fast_field_values("chunk", [address for _, address in hits])
        return Ranking(numpy.array(ids, numpy.int64), numpy.array([score for score, _ in hits], numpy.float32))

    def _picked(
        self, searcher: tantivy.Searcher, terms: tantivy.Query, k: int, documents: Collection[int]
    ) -> list[tuple[float, tantivy.DocAddress]] | None:
        """The `k` best hits in `documents`, from ever longer result lists. None when the lists become too long."""
        allowed = documents if isinstance(documents, set | frozenset) else frozenset(documents)
        length = k * _OVERSAMPLING
        while length <= self._max_oversampled_hits:
            hits = searcher.search(terms, length, count=False).hits
            owners = searcher.fast_field_values("document", [address for _, address in hits])
            kept = [hit for hit, owner in zip(hits, owners, strict=True) if owner in allowed][:k]
            if len(kept) == k or len(hits) < length:
                return kept
            length *= 4
        return None

    def _query(self, searcher: tantivy.Searcher, query: str) -> tantivy.Query | None:
        import tantivy

        clauses: list[tuple[tantivy.Occur, tantivy.Query]] = []
        for text, count in self._terms(searcher, query).items():
            for field, boost in (("body", count), ("title", count * _TITLE_BOOST)):
                term = tantivy.Query.term_query(self._index.schema, field, text, "freq")
                clauses.append((tantivy.Occur.Should, tantivy.Query.boost_query(term, boost)))
        return tantivy.Query.boolean_query(clauses) if clauses else None

    def _terms(self, searcher: tantivy.Searcher, query: str) -> Counter[str]:
        """The stems of the query, with their frequency in it."""
        tokens = term_analyzer(None).analyze(index_text(replace_unpaired_surrogates(query)))[:_MAX_QUERY_TERMS]
        terms: Counter[str] = Counter()
        for language in self._languages:
            dropped = stop_words_for(query, language)
            kept = [token for token in tokens if token not in dropped] or tokens
            # The maximum over languages, not the sum: most words have the same stem in all of them.
            terms |= Counter(term_analyzer("english").analyze(_stemmed(" ".join(kept), language)))
        for character in [term for term in terms if is_lone_character(term)]:
            bigrams = searcher.terms_with_prefix("body", character)
            for bigram, _ in sorted(bigrams, key=lambda bigram: -bigram[1])[:_BIGRAMS_PER_CHARACTER]:
                terms[bigram] = 1
        return terms

    def _restricted(
        self, terms: tantivy.Query, kind: IndexKind | None, documents: Collection[int] | None
    ) -> tantivy.Query:
        import tantivy

        conditions: list[tantivy.Query] = []
        if kind is not None and len(self._kinds - {kind}):
            conditions.append(tantivy.Query.term_query(self._index.schema, "kind", kind, "basic"))
        if documents is not None:
            conditions.append(tantivy.Query.term_set_query(self._index.schema, "document", list(documents)))
        if not conditions:
            return terms
        unscored = [(tantivy.Occur.Must, tantivy.Query.const_score_query(each, 0.0)) for each in conditions]
        return tantivy.Query.boolean_query([(tantivy.Occur.Must, terms), *unscored])

    def _renew_searcher(self) -> None:
        self._index.reload()
        searcher = self._index.searcher()
        languages = {language for language, _ in searcher.terms_with_prefix("language", "")}
        self._languages = sorted(languages | {"english"})
        self._kinds = {kind for kind, _ in searcher.terms_with_prefix("kind", "")}
        self._searcher = searcher

    @contextmanager
    def _written(self) -> Generator[tantivy.IndexWriter]:
        with self._writing, _damaged_if_unreadable():
            if self._writer is None:
                self._writer = _writer(self._index)
            yield self._writer


def _stemmed(text: str, language: str) -> str:
    """The text with the words of its language stemmed. English is stemmed by the field's own analyzer.

    All languages share one field, although the English stemmer then runs over other stems: with one field per
    language, BM25's mean length would include chunks that are not in the field.
    """
    return text if language == "english" else " ".join(term_analyzer(language).analyze(text))


def _writer(index: tantivy.Index) -> tantivy.IndexWriter:
    try:
        return index.writer(_WRITER_HEAP_BYTES, num_threads=1)
    except ValueError as error:
        if "LockBusy" in str(error):
            raise IndexBusy("another process writes to the lexical index", hint="stop the other server") from error
        raise


def _opened(directory: Path) -> tantivy.Index:
    import tantivy

    schema = (
        tantivy.SchemaBuilder()
        .add_integer_field("chunk", indexed=True, fast=True)
        .add_integer_field("document", indexed=True, fast=True)
        .add_text_field("kind", tokenizer_name="raw", index_option="basic")
        .add_text_field("language", tokenizer_name="raw", index_option="basic")
        .add_text_field("title", tokenizer_name="words", index_option="freq")
        .add_text_field("body", tokenizer_name="words", index_option="freq")
        .build()
    )
    return tantivy.Index(schema, path=os.fspath(directory))


@contextmanager
def _damaged_if_unreadable() -> Generator[None]:
    try:
        yield
    except ArmariumError:
        raise
    except (ValueError, OSError) as error:
        raise DamagedIndex("the lexical index cannot be read", private={"error": str(error)}) from error
    except BaseException as error:
        # Damaged postings end in a Rust panic, which is not an `Exception`.
        if type(error).__name__ != "PanicException":
            raise
        raise DamagedIndex("the lexical index is damaged", private={"error": str(error)}) from error
