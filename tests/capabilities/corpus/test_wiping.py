"""What policy comes to exclude is wiped from every file of the state at once; deleted documents are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import tantivy

from armarium.capabilities.corpus.files.exclusion import DEFAULT_PATH_EXCLUDES
from armarium.capabilities.corpus.index.lexical import LEXICAL_DIRECTORY
from support.corpus_calls import everything_in, rows
from support.open_corpus import OpenCorpus, found
from support.waiting import eventually

CANARY = "zanzibarian"


@pytest.fixture
def corpus(tmp_path: Path) -> OpenCorpus:
    root = tmp_path / "root"
    (root / "private").mkdir(parents=True)
    (root / "private/diary.md").write_text(f"The {CANARY} parrot sleeps at noon.\n")
    (root / "page.html").write_text("<title>Page</title><p>The harbour lies in the north.</p>")
    (root / "notes.txt").write_text("The supply boat comes on Mondays.\n")
    return OpenCorpus(root)


def holds(corpus: OpenCorpus) -> bool:
    """Whether the canary is anywhere in the state, or among the words of the index, which are not kept as text."""
    words = tantivy.Index.open(str(corpus.state_dir / LEXICAL_DIRECTORY)).searcher()
    known = words.terms_with_prefix("body", CANARY[:6])  # deleted chunks' words too, unlike in a search
    return bool(known) or CANARY.encode() in everything_in(corpus.state_dir)


def others_than_the_diary() -> dict[str, Any]:
    return {"path_excludes": (*DEFAULT_PATH_EXCLUDES, "private/")}


def no_parrots() -> dict[str, Any]:
    return {"secret_patterns": ("parrot sleeps",)}


@pytest.mark.parametrize("policy", [others_than_the_diary, no_parrots])
async def test_what_a_new_setting_excludes_is_in_no_file_any_more(
    corpus: OpenCorpus, policy: Callable[[], dict[str, Any]]
) -> None:
    await corpus.index()
    assert holds(corpus)
    async with corpus.opened(**policy()) as service:
        assert not holds(corpus), "it is wiped before the index is said to be complete"
        assert await found(service, "supply boat")
        assert "private/diary.md" not in await found(service, CANARY)
    assert not holds(corpus)
    assert (corpus.state_dir / LEXICAL_DIRECTORY).is_dir()


async def test_an_earlier_version_is_judged_by_the_new_policy_too(corpus: OpenCorpus) -> None:
    await corpus.index()
    (corpus.root / "private/diary.md").write_text("Nothing happened today.\n")
    await corpus.index()
    assert holds(corpus), "a tombstone"
    await corpus.index(**no_parrots())
    assert not holds(corpus)


async def test_a_member_of_an_archive_is_wiped_with_the_text_that_was_kept_of_it(corpus: OpenCorpus) -> None:
    with ZipFile(corpus.root / "box.zip", "w") as box:
        box.writestr("inside.md", f"A {CANARY} letter.\n")
    (corpus.root / "private/diary.md").unlink()
    await corpus.index()
    texts = "SELECT count(*) FROM representations WHERE content IS NOT NULL"
    assert rows(corpus.state_dir, texts) == [(1,)]
    await corpus.index(path_excludes=(*DEFAULT_PATH_EXCLUDES, "inside.md"))
    assert rows(corpus.state_dir, texts) == [(0,)]
    assert not holds(corpus)


async def test_a_file_that_comes_to_hold_a_secret_is_wiped_while_the_corpus_runs(corpus: OpenCorpus) -> None:
    async with corpus.opened() as service:
        assert holds(corpus)
        diary = corpus.root / "private/diary.md"
        diary.write_text(diary.read_text() + "key: AKIA" + "QQQQRRRRSSSSTTTT\n")
        await corpus.changed("private/diary.md")
        await eventually(lambda: service.indexing_complete)
        assert not holds(corpus)
        assert await found(service, "supply boat")
        (corpus.root / "new.md").write_text("Hazelnuts are brown.\n")
        await corpus.changed("new.md")
        await eventually(lambda: service.indexing_complete)
        assert "new.md" in await found(service, "hazelnuts")
    async with corpus.opened("none") as service:
        assert (await found(service, "hazelnuts"))[0] == "new.md"


async def test_what_git_comes_to_ignore_is_wiped(corpus: OpenCorpus) -> None:
    await corpus.index()
    (corpus.root / ".gitignore").write_text("private/\n")
    await corpus.index()
    assert not holds(corpus)


async def test_what_is_only_deleted_stays_until_a_start_clears_up(corpus: OpenCorpus) -> None:
    await corpus.index()
    (corpus.root / "private/diary.md").unlink()
    await corpus.index()
    assert rows(corpus.state_dir, "SELECT count(*) FROM chunks WHERE deleted = 1") == [(1,)]


async def test_a_process_that_ended_before_it_could_wipe_leaves_it_to_the_next(
    corpus: OpenCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await corpus.index()
    (corpus.root / ".gitignore").write_text("private/\n")

    def killed(self: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("armarium.capabilities.corpus.index.search_index.SearchIndex.wipe", killed)
        await corpus.index()
    assert holds(corpus)
    assert [failure.code for failure in corpus.failures] == ["INGESTION_FAILED"]
    await corpus.index()
    assert not holds(corpus)
