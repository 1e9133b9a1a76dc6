"""The secret scanner's findings are told to whoever keeps them: what and where, never the secret, and only news."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from armarium.capabilities.corpus.news import IndexProgress
from armarium.foundation.events import FileScanned, ScannerFinding
from support.open_corpus import OpenCorpus

SECRET = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
LEAK = f"first line\ntoken: {SECRET}\n"


class Listener:
    """A corpus, and what its scanner told."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.corpus = OpenCorpus(root)
        self.heard: list[FileScanned] = []

    def listen(self) -> None:
        self.corpus.events.subscribe(FileScanned, self._hear)

    async def _hear(self, event: FileScanned) -> None:
        self.heard.append(event)

    def told(self) -> list[tuple[str, list[tuple[str, int]]]]:
        """What was told since the last time, by file."""
        told = [
            (str(Path(event.host_path).relative_to(self.root)), [(found.rule, found.line) for found in event.findings])
            for event in self.heard
        ]
        self.heard.clear()
        return told


@pytest.fixture
def listener(tmp_path: Path) -> Listener:
    root = tmp_path / "root"
    root.mkdir()
    for number in range(20):
        (root / f"clean{number}.md").write_text(f"Nothing to hide in {number}.\n")
    (root / "leak.md").write_text(LEAK)
    return Listener(root)


async def test_a_file_with_a_credential_is_told_and_clean_ones_are_not(listener: Listener) -> None:
    listener.listen()
    await listener.corpus.index()
    (event,) = listener.heard
    assert event.scanner == "armarium-secrets"
    assert event.host_path == str(listener.root / "leak.md")
    assert ScannerFinding("github", 2) in event.findings
    assert SECRET not in repr(event)


async def test_a_file_without_its_credential_is_told_as_clean_once(listener: Listener) -> None:
    listener.listen()
    async with listener.corpus.opened() as corpus:
        assert [path for path, _ in listener.told()] == ["leak.md"]
        (listener.root / "leak.md").write_text("It is gone, and the words stay.\n")
        await listener.corpus.changed("leak.md")
        await corpus.until_indexed()
        await listener.corpus.until(lambda: bool(listener.heard))
        assert listener.told() == [("leak.md", [])]
        (listener.root / "leak.md").write_text("Clean as before.\n")
        await listener.corpus.changed("leak.md")
        await corpus.until_indexed()
    assert listener.told() == []


async def test_a_file_that_is_gone_has_no_credentials_any_more(listener: Listener) -> None:
    listener.listen()
    await listener.corpus.index()
    listener.told()
    (listener.root / "leak.md").unlink()
    await listener.corpus.index()
    assert listener.told() == [("leak.md", [])]


async def test_whoever_listens_later_is_told_at_the_next_start(listener: Listener) -> None:
    await listener.corpus.index()
    listener.corpus.failed_files.clear()
    listener.listen()
    await listener.corpus.index()
    assert [path for path, _ in listener.told()] == ["leak.md"]
    assert listener.corpus.failed_files == {}, "what was left out before is no news"


async def test_what_is_found_last_is_told_when_the_corpus_closes(listener: Listener) -> None:
    listener.listen()

    async def never_ends(news: IndexProgress) -> None:
        await anyio.sleep_forever()

    async with listener.corpus.opened() as corpus:
        listener.told()
        listener.corpus.events.subscribe(IndexProgress, never_ends)
        (listener.root / "late.md").write_text(LEAK)
        await listener.corpus.changed("late.md")
        while not (await corpus.list_files("late.md", None, 1, 0))[0]:
            await anyio.sleep(0.005)
        assert listener.told() == [], "another listener keeps all news waiting"
    assert [path for path, _ in listener.told()] == ["late.md"]
