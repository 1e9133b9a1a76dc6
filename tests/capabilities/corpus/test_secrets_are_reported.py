"""Findings of the secret scanner are published once: what and where, never the secret itself."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from armarium.capabilities.corpus.events import IndexProgress
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.foundation.events import FileScanned
from support.open_corpus import OpenCorpus
from support.waiting import eventually

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
    assert ("github", 2) in [(found.rule, found.line) for found in event.findings]
    assert SECRET not in repr(event)


async def test_a_file_without_its_credential_is_told_as_clean_once(listener: Listener) -> None:
    listener.listen()
    async with listener.corpus.opened() as corpus:
        assert [path for path, _ in listener.told()] == ["leak.md"]
        (listener.root / "leak.md").write_text("It is gone, and the words stay.\n")
        await listener.corpus.changed("leak.md")
        await corpus.until_indexed()
        await eventually(lambda: bool(listener.heard))
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
    assert listener.corpus.failed_files == {}, "what was excluded before is not reported again"


async def test_what_is_found_last_is_told_when_the_corpus_closes(listener: Listener) -> None:
    listener.listen()

    async def never_ends(event: IndexProgress) -> None:
        await anyio.sleep_forever()

    async with listener.corpus.opened() as corpus:
        listener.told()
        listener.corpus.events.subscribe(IndexProgress, never_ends)
        (listener.root / "late.md").write_text(LEAK)
        await listener.corpus.changed("late.md")

        async def is_listed() -> bool:
            return (await corpus.list_files("late.md", None, 1, 0))[0] > 0

        await eventually(is_listed)
        assert listener.told() == [], "another subscriber delays all events"
    assert [path for path, _ in listener.told()] == ["late.md"]


PRIVATE_KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA{0}\n-----END RSA PRIVATE KEY-----\n"


async def digests(listener: Listener, text: str) -> dict[tuple[str, int], str]:
    """What tells the credentials of a file apart, after it was written and indexed."""
    (listener.root / "leak.md").write_text(text)
    await listener.corpus.index()
    told = {(found.rule, found.line): found.digest for event in listener.heard for found in event.findings}
    listener.heard.clear()
    return told


async def test_a_credential_has_the_same_digest_wherever_it_stands_and_another_has_another(listener: Listener) -> None:
    listener.listen()
    other = SECRET[:-1] + "9"
    first = await digests(listener, f"login {SECRET}\nlogin {other}\n")
    assert len({first["github", 1], first["github", 2]}) == 2
    again = await digests(listener, f"\n\nlogin {other}\nmoved {SECRET}\n")
    assert (again["github", 3], again["github", 4]) == (first["github", 2], first["github", 1])


async def test_keys_that_begin_alike_are_told_apart_by_what_follows(listener: Listener) -> None:
    listener.listen()
    first = await digests(listener, f"{PRIVATE_KEY.format('aaaa')}{PRIVATE_KEY.format('bbbb')}")
    assert len(set(first.values())) == len(first) == 2
    again = await digests(listener, f"{PRIVATE_KEY.format('aaaa')}and other words behind it\n")
    assert again["private-key", 1] == first["private-key", 1]


async def test_a_digest_tells_nothing_to_whoever_has_another_key(listener: Listener, tmp_path: Path) -> None:
    listener.listen()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = Listener(elsewhere)
    other.listen()
    assert await digests(listener, LEAK) != await digests(other, LEAK)


def test_another_key_does_not_have_every_file_prepared_again() -> None:
    one, other = (Instructions((), (), digest_key=key) for key in (b"one", b"other"))
    assert one.fingerprint() == other.fingerprint()
    assert "one" not in repr(one)
