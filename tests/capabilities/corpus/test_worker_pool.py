"""A worker that crashes, hangs or cannot start affects one file, never the others."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from armarium.capabilities.corpus.errors import ExtractFailed
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.capabilities.corpus.ingest.worker_pool import WorkerPool
from armarium.capabilities.corpus.ingest.worker_process import TimeLimits, WorkerProcess, WorkerSetup
from armarium.capabilities.corpus.storage.prepared import Finished, Outcome, Prepared, PrepareRequest, Vanished
from armarium.foundation.files.confine import ConfinedRoot
from support.waiting import wait_until

DEADLINE_S = 30.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n\nText of {name}.\n")
    return tmp_path


@contextmanager
def workers(
    root: Path, *, size: int = 1, time_limits: TimeLimits | None = None, idle_s: float = 30.0
) -> Generator[WorkerPool]:
    setup = WorkerSetup(Instructions((), ()), 1024**3)
    with ConfinedRoot(str(root)) as confined:
        opened = WorkerPool(
            confined, setup, size=size, at_once=size, time_limits=time_limits or TimeLimits(), idle_s=idle_s
        )
        try:
            yield opened
        finally:
            opened.close()


def prepare(pool: WorkerPool, *rel_paths: str) -> list[Outcome]:
    return list(pool.prepare(PrepareRequest(path, "", 7, 8) for path in rel_paths))


def documents(outcomes: list[Outcome]) -> dict[str, str]:
    return {each.rel_path: each.error or each.status for each in outcomes if isinstance(each, Prepared)}


def finished(outcomes: list[Outcome]) -> list[str]:
    return sorted(each.rel_path for each in outcomes if isinstance(each, Finished))


def worker_pids() -> list[int]:
    """The worker processes of this process."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            parent = entry.joinpath("stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid() and b"ingest.worker" in entry.joinpath("cmdline").read_bytes():
                found.append(int(entry.name))
        except (OSError, ValueError, IndexError):
            continue
    return found


@contextmanager
def stuck_on(pool: WorkerPool, *rel_paths: str) -> Generator[tuple[int, list[Outcome]]]:
    """A worker that was handed the first of the files and does nothing; the outcomes are there after the block."""
    (pid,) = worker_pids()
    os.kill(pid, signal.SIGSTOP)
    outcomes: list[Outcome] = []
    handed_over = threading.Event()
    hand_over = WorkerProcess.hand_over

    def noted(process: WorkerProcess, wanted: PrepareRequest, fd: int) -> None:
        hand_over(process, wanted, fd)
        if wanted.rel_path == rel_paths[-1]:
            handed_over.set()

    thread = threading.Thread(target=lambda: outcomes.extend(prepare(pool, *rel_paths)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkerProcess, "hand_over", noted)
        thread.start()
        assert handed_over.wait(DEADLINE_S)
        yield pid, outcomes
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_every_file_comes_back_and_ends_with_finished(root: Path) -> None:
    names = [f"{number}.md" for number in range(80)]
    for name in names:
        (root / name).write_text(f"Text of {name}.\n")
    with workers(root, size=2) as pool:
        outcomes = prepare(pool, *names, "missing.md")
    assert documents(outcomes) == dict.fromkeys(names, "ok")
    assert [each.rel_path for each in outcomes if isinstance(each, Vanished)] == ["missing.md"]
    assert finished(outcomes) == sorted([*names, "missing.md"])
    assert worker_pids() == []


def test_a_worker_that_died_between_files_is_replaced_and_no_file_is_blamed(root: Path) -> None:
    with workers(root) as pool:
        assert documents(prepare(pool, "a.md")) == {"a.md": "ok"}
        (pid,) = worker_pids()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        outcomes = prepare(pool, "b.md", "c.md")
    assert documents(outcomes) == {"b.md": "ok", "c.md": "ok"}
    assert finished(outcomes) == ["b.md", "c.md"]


def test_a_file_on_which_the_worker_dies_is_an_error_and_the_next_goes_on(root: Path) -> None:
    with workers(root) as pool:
        prepare(pool, "a.md")
        with stuck_on(pool, "b.md", "c.md") as (pid, outcomes):
            os.kill(pid, signal.SIGKILL)
    assert documents(outcomes) == {"b.md": "EXTRACT_FAILED: the extractor crashed on this file", "c.md": "ok"}
    assert finished(outcomes) == ["b.md", "c.md"]
    # With size and time as they were found, it is not tried again before it changes.
    (failed,) = [each for each in outcomes if isinstance(each, Prepared) and each.status == "error"]
    assert (failed.size_bytes, failed.mtime_ns, failed.content_hash) == (7, 8, "")


def test_a_file_that_takes_too_long_is_an_error_and_the_next_goes_on(root: Path) -> None:
    with workers(root, time_limits=TimeLimits(cpu_s=3.0, cpu_s_per_megabyte=0.0, wall_factor=1.0)) as pool:
        prepare(pool, "a.md")
        with stuck_on(pool, "b.md", "c.md") as (pid, outcomes):
            pass
    assert documents(outcomes) == {"b.md": "EXTRACT_FAILED: extracting took longer than 3 seconds", "c.md": "ok"}
    assert not Path(f"/proc/{pid}").exists()


def test_closing_ends_a_worker_whatever_it_does_and_blames_no_file(root: Path) -> None:
    with workers(root) as pool:
        prepare(pool, "a.md")
        with stuck_on(pool, "b.md", "c.md") as (pid, outcomes):
            pool.close()
            assert not Path(f"/proc/{pid}").exists()
    assert outcomes == []


def test_workers_that_have_nothing_to_do_end_and_come_back(root: Path) -> None:
    with workers(root, idle_s=0.05) as pool:
        assert documents(prepare(pool, "a.md")) == {"a.md": "ok"}
        wait_until(lambda: worker_pids() == [])
        assert documents(prepare(pool, "b.md")) == {"b.md": "ok"}


def test_no_worker_is_started_before_there_is_work(root: Path) -> None:
    with workers(root, size=3) as pool:
        assert prepare(pool) == []
        assert worker_pids() == []


def test_a_worker_that_cannot_be_started_costs_the_file_this_time_only(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with workers(root) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(root / "no-such-python"))
            outcomes = prepare(pool, "a.md")
        assert documents(outcomes) == {"a.md": "EXTRACT_FAILED: the extractor could not be started"}
        assert finished(outcomes) == ["a.md"]
        # Without size and time the next scan finds it changed, and tries again.
        (failed,) = [each for each in outcomes if isinstance(each, Prepared)]
        assert (failed.size_bytes, failed.mtime_ns) != (7, 8)
        assert documents(prepare(pool, "a.md")) == {"a.md": "ok"}


def test_a_page_whose_words_move_to_other_lines_is_recorded_anew(root: Path) -> None:
    page = root / "page.html"
    seen: list[tuple[str, int]] = []
    with workers(root) as pool:
        for markup in ("", "<script>\n\n\n</script>\n"):
            page.write_text(f"<html><body>\n{markup}<p>The same words.</p>\n</body></html>\n")
            (prepared,) = [each for each in prepare(pool, "page.html") if isinstance(each, Prepared)]
            (representation,) = prepared.representations
            (chunk,) = representation.chunks
            seen.append((representation.rep_hash, chunk.start))
    (first_hash, first_line), (second_hash, second_line) = seen
    assert first_line < second_line
    assert first_hash != second_hash, "or the storage would keep the old lines"


def test_a_set_up_in_which_no_worker_starts_is_not_told_as_the_fault_of_every_file(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(root / "no-such-python"))
    with workers(root) as pool, pytest.raises(ExtractFailed, match="no worker process can be started"):
        prepare(pool, *(f"{number}.md" for number in range(100)))


def test_a_worker_that_dies_before_it_is_ready_is_not_the_fault_of_a_file(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with workers(root) as pool:
        assert documents(prepare(pool, "a.md")) == {"a.md": "EXTRACT_FAILED: the extractor could not be started"}
