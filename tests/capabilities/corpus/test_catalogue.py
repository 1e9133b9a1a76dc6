"""The catalogue answers filters as a plain list of documents and chunks would, after any changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from armarium.capabilities.corpus.index.catalogue import Catalogue
from armarium.foundation.files.glob_patterns import path_matcher
from armarium.retrieval.chunks import IndexKind

PATHS = ["a.md", "docs/a.md", "docs/b.py", "docs/deep/c.md", "src/b.py", "src/x.zip!/docs/a.md"]
TYPES = ["md", "code", "pdf"]
PREFIXES = [None, "", "docs/", "doc", "src/x.zip!/", "nowhere"]
GLOBS = [None, "*.md", "**/*.py", "docs/*", "docs/**"]
KINDS: list[IndexKind] = ["text", "code"]


class AgainstPlainLists(RuleBasedStateMachine):
    """Puts and drops as the indexer does them, and asks everything after each."""

    def __init__(self) -> None:
        super().__init__()
        self.catalogue = Catalogue()
        self.documents: dict[int, tuple[str, str]] = {}
        self.chunks: dict[int, tuple[int, IndexKind]] = {}
        self.next_chunk = 1

    @rule(doc_id=st.integers(1, 6), path=st.sampled_from(PATHS), doc_type=st.sampled_from(TYPES))
    def put_document(self, doc_id: int, path: str, doc_type: str) -> None:
        self.catalogue.put_document(doc_id, path, doc_type)
        self.documents[doc_id] = (path, doc_type)

    @rule(doc_id=st.integers(1, 6), kind=st.sampled_from(KINDS), gap=st.sampled_from([1, 1, 1, 7, 1500]))
    def put_chunk(self, doc_id: int, kind: IndexKind, gap: int) -> None:
        self.next_chunk += gap
        self.catalogue.put_chunk(self.next_chunk, doc_id, kind)
        self.chunks[self.next_chunk] = (doc_id, kind)

    @rule(data=st.data())
    def drop_chunk(self, data: st.DataObject) -> None:
        chunk_id = data.draw(st.sampled_from([*self.chunks, 0, self.next_chunk + 5, 10**7]))
        self.catalogue.drop_chunk(chunk_id)
        self.chunks.pop(chunk_id, None)

    @rule(doc_id=st.integers(1, 7))
    def drop_document(self, doc_id: int) -> None:
        for chunk_id in [each for each, (owner, _) in self.chunks.items() if owner == doc_id]:
            self.catalogue.drop_chunk(chunk_id)
            del self.chunks[chunk_id]
        self.catalogue.drop_document(doc_id)
        self.documents.pop(doc_id, None)

    @rule()
    def start_again(self) -> None:
        """A new process takes over what is stored."""
        self.catalogue = Catalogue()
        self.catalogue.load(
            [(doc_id, path, doc_type) for doc_id, (path, doc_type) in self.documents.items()],
            [(chunk_id, doc_id, int(kind == "code")) for chunk_id, (doc_id, kind) in sorted(self.chunks.items())],
        )

    @rule(
        prefix=st.sampled_from(PREFIXES),
        glob=st.sampled_from(GLOBS),
        types=st.none() | st.lists(st.sampled_from(TYPES)),
    )
    def filter(self, prefix: str | None, glob: str | None, types: list[str] | None) -> None:
        chosen = self.catalogue.documents(prefix, glob, types)
        if not prefix and not glob and not types:
            assert chosen is None
            return
        expected = {
            doc_id
            for doc_id, (path, doc_type) in self.documents.items()
            if path.startswith(prefix or "")
            and (not types or doc_type in types)
            and (glob is None or path_matcher(glob)(path))
        }
        assert chosen == expected
        chunks = {chunk_id for chunk_id, (doc_id, _) in self.chunks.items() if doc_id in expected}
        assert set(self.catalogue.chunks_of(chosen).tolist()) == chunks

    @invariant()
    def the_living_are_known_and_counted(self) -> None:
        asked = numpy.array([*self.chunks, 0, self.next_chunk + 1, 10**7], numpy.int64)
        alive = dict(zip(asked.tolist(), self.catalogue.alive(asked).tolist(), strict=True))
        assert {chunk_id for chunk_id, lives in alive.items() if lives} == set(self.chunks)
        for kind in KINDS:
            assert self.catalogue.chunks[kind] == sum(each == kind for _, each in self.chunks.values())


TestAgainstPlainLists = AgainstPlainLists.TestCase


class WhileDocumentsComeIn(set[int]):
    """Documents to choose, and a new one that is recorded while they are looked at."""

    def __init__(self, catalogue: Catalogue, *documents: int) -> None:
        super().__init__(documents)
        self._catalogue = catalogue

    def __iter__(self) -> Iterator[int]:
        self._catalogue.put_chunk(5, 900, "text")
        return super().__iter__()


def test_a_filter_holds_while_documents_with_higher_numbers_come_in() -> None:
    catalogue = Catalogue()
    for chunk_id, doc_id in ((1, 1), (2, 2), (3, 1)):
        catalogue.put_chunk(chunk_id, doc_id, "text")
    assert catalogue.chunks_of(WhileDocumentsComeIn(catalogue, 1)).tolist() == [1, 3]


@given(st.lists(st.integers(0, 5000), unique=True, max_size=20))
def test_nothing_lives_in_an_empty_catalogue(ids: list[int]) -> None:
    catalogue = Catalogue()
    assert not catalogue.alive(numpy.array(ids, numpy.int64)).any()
    assert catalogue.chunks_of({1, 2}).tolist() == []
