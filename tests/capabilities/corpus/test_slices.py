"""Excluded files cannot be opened by any name, and a chunk can be opened by its id."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from armarium.capabilities.corpus.errors import CorpusError
from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.query.search import Filters, SearchHit
from armarium.capabilities.corpus.query.slices import Slice, SliceReader
from armarium.capabilities.corpus.service import Corpus
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.foundation.files.confine import ConfinedRoot
from support.client import connected
from support.corpus import CorpusProcess
from support.corpus_calls import WITHOUT_WATCHING, answer, refusal
from support.open_corpus import OpenCorpus
from support.waiting import eventually


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A tree with .gitignore files at two levels, and links to both sides of them."""
    top = tmp_path / "top"
    for directory in ("sub/deep", "made/deep", "linked"):
        (top / directory).mkdir(parents=True)
    (top / ".gitignore").write_text("*.log\nmade/\nkept.zip\n")
    (top / "sub/.gitignore").write_text("!keep.log\n/deep/private.md\n")
    (top / "made/.gitignore").write_text("!*\n")
    for path in (
        "a.md", "a.log", "sub/a.log", "sub/keep.log", "sub/deep/private.md", "sub/deep/keep.log", "sub/private.md",
        "made/deep/report.md",
    ):  # fmt: skip
        (top / path).write_text("words\n")
    (top / "linked/to_hidden.md").symlink_to("../made/deep/report.md")
    (top / "linked/to_shown.md").symlink_to("../a.md")
    (top / "linked/made_elsewhere").symlink_to("../made")
    return top


@pytest.fixture
def storage(tmp_path: Path) -> Generator[Storage]:
    opened = Storage(tmp_path / "meta.sqlite")
    yield opened
    opened.close()


def outcome(
    top: Path, storage: Storage, path: str, exclusion: Exclusion | None = None, *, gitignore: bool = True
) -> str:
    """The content of the file, or the code of the refusal."""
    with ConfinedRoot(str(top)) as root:
        opening = SliceReader(root, storage, exclusion or Exclusion(secret_patterns=[]), 1_000_000, gitignore=gitignore)
        try:
            return opening.read(path, Slice(), 1000).content
        except CorpusError as error:
            return error.code


@pytest.mark.parametrize(
    "path",
    [
        "a.log",
        "sub/a.log",
        "sub/deep/private.md",
        "made/deep/report.md",
        "./sub/../a.log",
        "linked/to_hidden.md",
        "linked/made_elsewhere/deep/report.md",
        "kept.zip!/inside.md",
    ],
)
def test_what_a_gitignore_leaves_out_is_refused(top: Path, storage: Storage, path: str) -> None:
    assert outcome(top, storage, path) == "FORBIDDEN"


@pytest.mark.parametrize("path", ["a.md", "sub/keep.log", "sub/deep/keep.log", "sub/private.md", "linked/to_shown.md"])
def test_what_a_deeper_gitignore_shows_again_or_none_names_is_opened(top: Path, storage: Storage, path: str) -> None:
    assert outcome(top, storage, path) == "words"


@pytest.mark.parametrize("path", ["a.log", "sub/deep/private.md", "made/deep/report.md", "linked/to_hidden.md"])
def test_where_gitignores_are_not_obeyed_they_refuse_nothing(top: Path, storage: Storage, path: str) -> None:
    assert outcome(top, storage, path, gitignore=False) == "words"


def test_a_member_of_an_excluded_archive_is_refused(top: Path, storage: Storage) -> None:
    exclusion = Exclusion(["backup.zip"], secret_patterns=[])
    assert outcome(top, storage, "backup.zip!/inside.md", exclusion) == "FORBIDDEN"


def test_a_name_that_no_file_can_have_is_not_found(top: Path, storage: Storage) -> None:
    for path in ("\ud800.md", "sub/" + "x" * 5000, "a.md/b.md"):
        assert outcome(top, storage, path) == "FILE_NOT_FOUND"


async def test_what_a_followed_link_brought_into_the_index_can_be_opened(top: Path) -> None:
    (top / "linked/made_elsewhere").unlink()  # every document is found once, and by this way first
    following = {**WITHOUT_WATCHING, "DIR2MCP_INGEST__FOLLOW_SYMLINKS": "true"}
    with CorpusProcess(top, environ=following) as process:
        process.wait_until_indexed()
        async with connected(process.url, key=process.token) as client:
            opened = await answer(client, "open_file", rel_path="linked/to_hidden.md")
            assert opened["content"] == "words"
            assert (await refusal(client, "open_file", rel_path="made/deep/report.md"))["code"] == "FORBIDDEN"


ENTRIES = ", ".join(f'"key{number}": "the lamp of tower {number} is lit at dusk"' for number in range(3000))
PARAGRAPHS = " ".join(f"<p>Tower {number} &amp; its lamp are old.</p>" for number in range(6000))
ONE_LINE = f"{{{ENTRIES}}}"
PAGE = f"<html><body>{PARAGRAPHS}</body></html>"


async def hits_of(corpus: Corpus, query: str, k: int) -> Sequence[SearchHit]:
    return (await corpus.search(query, k, "both", Filters())).hits


@pytest.mark.parametrize(("name", "text"), [("towers.json", ONE_LINE), ("towers.html", PAGE), ("min.js", ONE_LINE)])
async def test_every_chunk_of_a_one_line_file_can_be_opened_by_its_id(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "other.md").write_text("# Other\n\nAnother file.\n")
    async with OpenCorpus(tmp_path).opened(wait=False) as corpus:
        found = await eventually(lambda: hits_of(corpus, "tower 2999 lamp", 50))
        hits = [hit for hit in found if hit.chunk.rel_path == name]
        assert hits
        for hit in hits:
            opened = await corpus.open_file(name, Slice(chunk_id=hit.chunk.chunk_id), 3000)
            first = " ".join(hit.chunk.text.split()[:2])
            assert first in opened.content
            assert (opened.span, opened.truncated) == (hit.chunk.span, True)
        with pytest.raises(CorpusError) as refused:
            await corpus.open_file("other.md", Slice(chunk_id=hits[0].chunk.chunk_id), 3000)
        assert refused.value.code == "INVALID_FIELD"


async def test_a_chunk_that_fits_is_opened_with_its_whole_lines(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Lamp\n\nThe lamp is lit at dusk.\n")
    async with OpenCorpus(tmp_path).opened(wait=False) as corpus:
        found = await eventually(lambda: hits_of(corpus, "lamp dusk", 5))
        opened = await corpus.open_file("a.md", Slice(chunk_id=found[0].chunk.chunk_id), 3000)
        assert (opened.content, opened.truncated) == ("# Lamp\n\nThe lamp is lit at dusk.", False)
