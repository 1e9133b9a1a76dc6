"""The index of words: BM25 over the passages, on disk, searched while it grows."""

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
from armarium.retrieval.chunks import IndexKind
from armarium.retrieval.errors import IndexBusy, TornIndex
from armarium.retrieval.search.terms import index_text, is_lone_character, language_of, little_words, word_analyzer

if TYPE_CHECKING:
    import numpy
    import tantivy
    from numpy.typing import NDArray

_FORMAT: Final = "1"
"""Raised whenever words are cut, stemmed or kept in another way: an index written by an older one is built anew."""
_FORMAT_FILE: Final = "format"

_WRITER_HEAP_BYTES: Final = 24_000_000
_MOST_QUERY_WORDS: Final = 512
_PAIRS_FOR_A_CHARACTER: Final = 16

# The title also stands in the body, so this is what a word in it counts more. Measured: 0.25 to 0.5 are alike, and
# title and body as fields apart are worse than both.
_TITLE_BOOST: Final = 0.3
# So many documents are named to tantivy one by one. More are many enough for hits to be picked from a longer list.
_MOST_NAMED_DOCUMENTS: Final = 2000
_OVERSAMPLING: Final = 5
_LONGEST_PICKED_FROM: Final = 20_000


@dataclass(frozen=True, slots=True)
class WordPassage:
    """A passage as the word index takes it; its text is kept elsewhere."""

    chunk_id: int
    doc_id: int
    kind: IndexKind
    title: str
    """The words of its path, and its document's own title."""
    context: str
    """What stands above it: headings, enclosing definitions."""
    text: str


@dataclass(frozen=True, slots=True)
class WordHits:
    """What the words found, best first."""

    ids: NDArray[numpy.int64]
    scores: NDArray[numpy.float32]


class WordIndex:
    """Passages by their words. Any thread may search while one adds; what was added is found after `commit`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writing = threading.Lock()
        self._writer: tantivy.IndexWriter | None = None
        with _torn_if_unreadable():
            self._index = _opened(directory)
            self._analyzers = {"english": word_analyzer("english")}
            self._tokens = word_analyzer(None)
            self._index.register_tokenizer("words", self._analyzers["english"])
            self._renew_searcher()

    @classmethod
    def open(cls, directory: Path) -> WordIndex:
        """The index in `directory`, made when there is none. Raises `TornIndex` when it must be built anew."""
        version = directory / _FORMAT_FILE
        if not directory.is_dir() or not any(directory.iterdir()):
            directory.mkdir(parents=True, exist_ok=True)
            version.write_text(_FORMAT)
        elif not version.is_file() or version.read_text(errors="replace") != _FORMAT:
            raise TornIndex("the word index was written by another version", hint="it is built anew by itself")
        return cls(directory)

    def __len__(self) -> int:
        return self._searcher.num_docs

    def add(self, passages: Iterable[WordPassage]) -> None:
        """Take in passages. They are found after the next `commit`."""
        import tantivy

        with self._written() as writer:
            for passage in passages:
                language = "english" if passage.kind == "code" else language_of(passage.text)
                body = index_text(f"{passage.title}\n{passage.context}\n{passage.text}")
                title = index_text(f"{passage.title} {passage.context}")
                writer.add_document(
                    tantivy.Document(
                        chunk=passage.chunk_id,
                        document=passage.doc_id,
                        kind=passage.kind,
                        language=language,
                        title=self._stemmed(title, language),
                        body=self._stemmed(body, language),
                    )
                )

    def remove(self, chunk_ids: Iterable[int]) -> None:
        """Let go of passages. They are found until the next `commit`."""
        self._remove("chunk", chunk_ids)

    def remove_documents(self, doc_ids: Iterable[int]) -> None:
        """Let go of all passages of documents. They are found until the next `commit`."""
        self._remove("document", doc_ids)

    def commit(self) -> None:
        """Make what was added and removed durable, and then visible."""
        with self._written() as writer:
            writer.commit()
            self._renew_searcher()

    def close(self) -> None:
        """Give the index to other processes. What was not committed is lost."""
        with self._writing:
            self._writer = None

    def search(
        self, query: str, k: int, *, kind: IndexKind | None = None, documents: Collection[int] | None = None
    ) -> WordHits:
        """The `k` best passages for the query's words; of one kind, and of `documents` only, where these are given."""
        import numpy

        searcher = self._searcher
        with _torn_if_unreadable():
            words = self._query(searcher, query)
            if words is None or not searcher.num_docs or (documents is not None and not documents):
                return WordHits(numpy.empty(0, numpy.int64), numpy.empty(0, numpy.float32))
            picked = None
            if documents is not None and len(documents) > _MOST_NAMED_DOCUMENTS:
                picked = self._picked(searcher, self._restricted(words, kind, None), k, documents)
            if picked is None:
                hits = searcher.search(self._restricted(words, kind, documents), k, count=False).hits
                picked = [score for score, _ in hits], [address for _, address in hits]
            scores, addresses = picked
            ids = searcher.fast_field_values("chunk", addresses)
        return WordHits(numpy.array(ids, numpy.int64), numpy.array(scores, numpy.float32))

    def _picked(
        self, searcher: tantivy.Searcher, words: tantivy.Query, k: int, documents: Collection[int]
    ) -> tuple[list[float], list[tantivy.DocAddress]] | None:
        """The best hits that are in `documents`, out of ever longer lists until there are `k`; None: too long ones."""
        allowed = documents if isinstance(documents, set | frozenset) else frozenset(documents)
        length = k * _OVERSAMPLING
        while length <= _LONGEST_PICKED_FROM:
            hits = searcher.search(words, length, count=False).hits
            owners = searcher.fast_field_values("document", [address for _, address in hits])
            kept = [hit for hit, owner in zip(hits, owners, strict=True) if owner in allowed][:k]
            if len(kept) == k or len(hits) < length:
                return [score for score, _ in kept], [address for _, address in kept]
            length *= 4
        return None

    def _query(self, searcher: tantivy.Searcher, query: str) -> tantivy.Query | None:
        import tantivy

        clauses: list[tuple[tantivy.Occur, tantivy.Query]] = []
        for word, times in self._words(searcher, query).items():
            for field, boost in (("body", times), ("title", times * _TITLE_BOOST)):
                term = tantivy.Query.term_query(self._index.schema, field, word, "freq")
                clauses.append((tantivy.Occur.Should, tantivy.Query.boost_query(term, boost)))
        return tantivy.Query.boolean_query(clauses) if clauses else None

    def _words(self, searcher: tantivy.Searcher, query: str) -> Counter[str]:
        """The stems to look for, and how often each was asked for."""
        tokens = self._tokens.analyze(index_text(query.encode("utf-8", "replace").decode()))[:_MOST_QUERY_WORDS]
        words: Counter[str] = Counter()
        for language in self._languages:
            dropped = little_words(query, language)
            kept = [token for token in tokens if token not in dropped] or tokens
            # The most any language asks for, not the sum: most words have one stem in all of them.
            words |= Counter(self._analyzers["english"].analyze(self._stemmed(" ".join(kept), language)))
        for character in [word for word in words if is_lone_character(word)]:
            pairs = searcher.terms_with_prefix("body", character)
            for pair, _ in sorted(pairs, key=lambda pair: -pair[1])[:_PAIRS_FOR_A_CHARACTER]:
                words[pair] = 1
        return words

    def _stemmed(self, text: str, language: str) -> str:
        """The text with the endings of its language gone; those of English are left to the field's own analyzer.

        One field for all languages, although other stems then lose what looks like an English ending: with a field for
        each, tantivy would take the mean length of texts over passages that are not in it.
        """
        if language == "english":
            return text
        analyzer = self._analyzers.get(language)
        if analyzer is None:
            analyzer = self._analyzers[language] = word_analyzer(language)
        return " ".join(analyzer.analyze(text))

    def _restricted(
        self, words: tantivy.Query, kind: IndexKind | None, documents: Collection[int] | None
    ) -> tantivy.Query:
        import tantivy

        conditions: list[tantivy.Query] = []
        if kind is not None and len(self._kinds - {kind}):
            conditions.append(tantivy.Query.term_query(self._index.schema, "kind", kind, "basic"))
        if documents is not None:
            conditions.append(tantivy.Query.term_set_query(self._index.schema, "document", list(documents)))
        if not conditions:
            return words
        unscored = [(tantivy.Occur.Must, tantivy.Query.const_score_query(each, 0.0)) for each in conditions]
        return tantivy.Query.boolean_query([(tantivy.Occur.Must, words), *unscored])

    def _remove(self, field: str, ids: Iterable[int]) -> None:
        with self._written() as writer:
            for each in ids:
                writer.delete_documents_by_term(field, each)

    def _renew_searcher(self) -> None:
        self._index.reload()
        searcher = self._index.searcher()
        languages = {language for language, _ in searcher.terms_with_prefix("language", "")}
        self._languages = sorted(languages | {"english"})
        self._kinds = {kind for kind, _ in searcher.terms_with_prefix("kind", "")}
        self._searcher = searcher

    @contextmanager
    def _written(self) -> Generator[tantivy.IndexWriter]:
        with self._writing, _torn_if_unreadable():
            if self._writer is None:
                self._writer = _writer(self._index)
            yield self._writer


def _writer(index: tantivy.Index) -> tantivy.IndexWriter:
    try:
        return index.writer(_WRITER_HEAP_BYTES, num_threads=1)
    except ValueError as error:
        if "LockBusy" in str(error):
            raise IndexBusy("another process writes to the word index", hint="stop the other server") from error
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
def _torn_if_unreadable() -> Generator[None]:
    try:
        yield
    except ArmariumError:
        raise
    except (ValueError, OSError) as error:
        raise TornIndex("the word index cannot be read", private={"error": str(error)}) from error
    except BaseException as error:
        # A panic in Rust is no `Exception`; damaged postings end in one.
        if type(error).__name__ != "PanicException":
            raise
        raise TornIndex("the word index is damaged", private={"error": str(error)}) from error
