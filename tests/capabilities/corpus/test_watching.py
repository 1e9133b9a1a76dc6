"""Changes are noticed whatever a file is called, by periodic scans where inotify fails."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import anyio
import pytest

from armarium.capabilities.corpus.files import inotify
from armarium.capabilities.corpus.files.watcher import Watcher
from armarium.capabilities.corpus.settings import IngestSettings
from support.client import ToolClient, connected
from support.corpus import CorpusProcess
from support.corpus_calls import listed, until_found
from support.open_corpus import OpenCorpus, found
from support.waiting import eventually

DEADLINE_S = 60.0
LATIN = b"caf\xe9.txt"
SHOWN = r"caf\xe9.txt"


@pytest.fixture
def live(tmp_path: Path) -> Generator[CorpusProcess]:
    root = tmp_path / "root"
    (root / "plain").mkdir(parents=True)
    (root / "node_modules").mkdir()
    (root / "a.md").write_text("Apples are picked in October.\n")
    with CorpusProcess(root) as process:
        process.wait_until_indexed()
        yield process


def write(directory: Path, name: bytes, text: str) -> None:
    with open(os.path.join(os.fsencode(directory), name), "w") as file:
        file.write(text)


async def content(client: ToolClient, rel_path: str) -> str:
    result = await client.result("dir2mcp.open_file", {"rel_path": rel_path})
    return (result.structured_content or {})["content"]


async def test_a_name_that_is_not_utf8_is_found_listed_cited_and_opened(live: CorpusProcess) -> None:
    async with connected(live.url, key=live.token) as client:
        write(live.directory, LATIN, "Quinces ripen late.\n")
        await until_found(client, "Quinces", [SHOWN])
        assert await listed(client) == ["a.md", SHOWN]
        assert await content(client, SHOWN) == "Quinces ripen late."
        write(live.directory, LATIN, "Medlars ripen later.\n")
        await until_found(client, "Medlars", [SHOWN])
        await until_found(client, "Quinces", [])
        os.unlink(os.path.join(os.fsencode(live.directory), LATIN))
        await until_found(client, "Medlars", [])
        assert await listed(client) == ["a.md"]


async def test_odd_names_in_ignored_folders_on_renames_and_of_directories_do_not_end_the_server(
    live: CorpusProcess,
) -> None:
    root = os.fsencode(live.directory)
    async with connected(live.url, key=live.token) as client:
        write(live.directory / "node_modules", b"f\xfe.txt", "Nobody wants this.\n")
        write(live.directory / "plain", b"b.txt", "Cherries are red.\n")
        await until_found(client, "Cherries", ["plain/b.txt"])
        os.rename(root + b"/plain/b.txt", root + b"/plain/\xfe\xff.txt")
        await until_found(client, "Cherries", [r"plain/\xfe\xff.txt"])
        os.rename(root + b"/plain", root + b"/pl\xe4in")
        await until_found(client, "Cherries", [r"pl\xe4in/\xfe\xff.txt"])
        write(live.directory, b"c.txt", "Plums are blue.\n")
        await until_found(client, "Plums", ["c.txt"])
        assert await content(client, r"pl\xe4in/\xfe\xff.txt") == "Cherries are red."


async def test_a_real_backslash_is_not_taken_for_an_escape(live: CorpusProcess) -> None:
    async with connected(live.url, key=live.token) as client:
        write(live.directory, rb"caf\xe9.txt", "Written with a backslash.\n")
        write(live.directory, LATIN, "Written with one byte.\n")
        await until_found(client, "backslash", [r"caf\x5cxe9.txt"])
        await until_found(client, "byte", [SHOWN])
        assert await content(client, r"caf\x5cxe9.txt") == "Written with a backslash."
        assert await content(client, SHOWN) == "Written with one byte."


def _may_limit() -> bool:
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", "echo 1 > /proc/sys/user/max_inotify_watches"]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True).returncode == 0


def limited(limit: str) -> list[str]:
    """A command that runs a server whose user has no more of something."""
    name, _, most = limit.partition("=")
    script = f'echo {most} > /proc/sys/user/max_inotify_{name} && exec "$@"'
    return ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh"]


@pytest.mark.skipif(not _may_limit(), reason="the kernel lets nobody make a user with limits of its own here")
@pytest.mark.parametrize("limit", ["instances=0", "watches=2"])
async def test_without_notices_from_the_system_the_server_stays_up_looks_itself_and_says_so(
    tmp_path: Path, limit: str
) -> None:
    root = tmp_path / "root"
    (root / "deep/deeper/deepest").mkdir(parents=True)
    (root / "a.md").write_text("Apples are picked in October.\n")
    with CorpusProcess(root, within=limited(limit)) as process:
        process.wait_until_indexed()
        async with connected(process.url, key=process.token) as client:
            (root / "deep/deeper/deepest/b.md").write_text("Cherries are red.\n")
            await until_found(client, "Cherries", ["deep/deeper/deepest/b.md"])
            stats = await client.result("dir2mcp.stats", {})
            assert "the system gives no notice of changes" in str(stats.content)
        process.wait_for_log("no notice of changes")
        assert sum("no notice of changes" in line for line in process.log) == 1
        status = (process.state_dir / "corpus.json").read_text()
        assert "the system gives no notice of changes" in status


async def watched(root: Path, body: Callable[[OpenCorpus, Any], Any]) -> None:
    corpus = OpenCorpus(root)
    async with corpus.opened(ingest=IngestSettings(watch=True)) as service:
        await body(corpus, service)


async def until_finds(service: Any, query: str, paths: list[str]) -> None:
    async def finds() -> bool:
        return await found(service, query) == paths

    await eventually(finds)


@pytest.mark.parametrize("failure", [OSError(errno.EMFILE, "too many"), RuntimeError("anything"), AttributeError()])
async def test_a_watcher_that_fails_is_tried_again_until_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    monkeypatch.setattr(Watcher, "first_pause_s", 0.05)
    (tmp_path / "a.md").write_text("Apples.\n")
    watch_all, failing = inotify.TreeWatch.watch_all, True

    def fail_at_first(tree: inotify.TreeWatch) -> None:
        if failing:
            raise failure
        watch_all(tree)

    monkeypatch.setattr(inotify.TreeWatch, "watch_all", fail_at_first)

    async def body(corpus: OpenCorpus, service: Any) -> None:
        nonlocal failing
        (tmp_path / "b.md").write_text("Cherries.\n")
        await until_finds(service, "Cherries", ["b.md", "a.md"])
        assert service.warnings
        failing = False
        await eventually(lambda: not service.warnings)
        (tmp_path / "b.md").unlink()
        await until_finds(service, "Cherries", ["a.md"])

    await watched(tmp_path, body)


async def test_one_unreadable_folder_costs_only_its_own_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "a/a.md").write_text("Apples.\n")
    real_watch = inotify.TreeWatch.watch

    def denied(tree: inotify.TreeWatch, directory: bytes, place: bytes) -> bool:
        if directory == b"b":
            tree.unwatched["b"] = errno.EACCES
            return False
        return real_watch(tree, directory, place)

    monkeypatch.setattr(inotify.TreeWatch, "watch", denied)

    async def body(corpus: OpenCorpus, service: Any) -> None:
        (tmp_path / "c/c.md").write_text("Cherries.\n")
        await until_finds(service, "Cherries", ["c/c.md", "a/a.md"])
        assert not service.warnings

    await watched(tmp_path, body)


async def test_notices_that_the_kernel_dropped_lead_to_a_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.md").write_text("Apples.\n")
    read = inotify.TreeWatch.read

    def overflowing(tree: inotify.TreeWatch) -> inotify.Changes:
        read(tree)
        return inotify.Changes(overflowed=True)

    monkeypatch.setattr(inotify.TreeWatch, "read", overflowing)

    async def body(corpus: OpenCorpus, service: Any) -> None:
        (tmp_path / "b.md").write_text("Cherries.\n")
        await until_finds(service, "Cherries", ["b.md", "a.md"])

    await watched(tmp_path, body)


def test_a_moved_directory_is_followed_under_its_new_path(tmp_path: Path) -> None:
    (tmp_path / "old/below").mkdir(parents=True)
    with inotify.TreeWatch(str(tmp_path), lambda path: path == "left out") as tree:
        tree.watch_all()
        (tmp_path / "old").rename(tmp_path / "new")
        assert tree.read().paths == {"old", "new"}
        (tmp_path / "new/below/a.md").write_text("a")
        assert tree.read().paths == {"new/below/a.md"}
        (tmp_path / "left out").mkdir()
        assert tree.read().paths == {"left out"}
        (tmp_path / "left out/a.md").write_text("a")
        (tmp_path / "new/below/a.md").unlink()
        (tmp_path / "new/below").rmdir()
        assert tree.read().paths == {"new/below/a.md", "new/below"}
        (tmp_path / "new/below/again").mkdir(parents=True)
        assert "new/below" in tree.read().paths
        (tmp_path / "new/below/again/b.md").write_text("b")
        assert tree.read().paths == {"new/below/again/b.md"}


async def test_directories_without_notices_are_looked_at_also_while_others_give_notice_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watcher, "first_pause_s", 1.0)
    for name in ("busy", "unwatched"):
        (tmp_path / name).mkdir()
    (tmp_path / "busy/a.md").write_text("Apples.\n")
    real_watch = inotify.TreeWatch.watch

    def short(tree: inotify.TreeWatch, directory: bytes, place: bytes) -> bool:
        if directory == b"unwatched":
            tree.unwatched["unwatched"] = errno.ENOSPC
            return False
        return real_watch(tree, directory, place)

    monkeypatch.setattr(inotify.TreeWatch, "watch", short)

    async def body(corpus: OpenCorpus, service: Any) -> None:
        (tmp_path / "unwatched/c.md").write_text("Cherries.\n")
        number = 0
        with anyio.fail_after(DEADLINE_S):
            while "unwatched/c.md" not in await found(service, "Cherries"):
                number += 1
                (tmp_path / "busy/a.md").write_text(f"Apples, {number}.\n")
                await anyio.sleep(0.05)

    await watched(tmp_path, body)
