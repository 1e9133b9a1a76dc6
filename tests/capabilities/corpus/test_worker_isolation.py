"""A parser that a file has taken over reaches only that file, and its messages are not trusted."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from armarium.capabilities.corpus.ingest import worker_process
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.capabilities.corpus.ingest.worker_pool import WorkerPool
from armarium.capabilities.corpus.ingest.worker_process import TimeLimits, WorkerSetup
from armarium.capabilities.corpus.settings import IngestSettings
from armarium.capabilities.corpus.storage.prepared import Finished, Outcome, Prepared, PrepareRequest
from armarium.foundation.files.confine import ConfinedRoot
from armarium.foundation.processes.isolation import Isolation, available_isolation
from support.open_corpus import OpenCorpus, found
from support.waiting import eventually

CANARY = "canary-5f1c0c9e"
IMPATIENT = TimeLimits(cpu_s=2.0, cpu_s_per_megabyte=0.0, wall_factor=2.0)
KEPT = {
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "PYTHONHOME",
    "PYTHONNOUSERSITE",
    "PYTHONPATH",
    "PYTHONPLATLIBDIR",
    "PYTHONUSERBASE",
}
MISTRUSTED = "EXTRACT_FAILED: the extractor sent an invalid message"

needs_all_of_it = pytest.mark.skipif(
    not available_isolation().is_complete, reason="the kernel has no Landlock or no seccomp"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "root"
    directory.mkdir()
    return directory


@pytest.fixture
def taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers run the attacker's code once they are locked down."""
    monkeypatch.setattr(worker_process, "WORKER_MODULE", "support.taken_over_worker")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


IsolationMode = Literal["auto", "required", "off"]


@contextmanager
def pool(
    root: Path, *, size: int = 1, time_limits: TimeLimits | None = None, isolation: IsolationMode = "auto"
) -> Generator[WorkerPool]:
    setup = WorkerSetup(Instructions((), ()), 1024**3, isolation)
    with ConfinedRoot(str(root)) as confined:
        opened = WorkerPool(confined, setup, size=size, at_once=1, time_limits=time_limits or TimeLimits())
        try:
            yield opened
        finally:
            opened.close()


def prepared(
    root: Path,
    name: str,
    content: str = "x",
    time_limits: TimeLimits | None = None,
    isolation: IsolationMode = "auto",
) -> list[Prepared]:
    (root / name).write_text(content)
    with pool(root, time_limits=time_limits, isolation=isolation) as workers:
        return [each for each in workers.prepare([PrepareRequest(name)]) if isinstance(each, Prepared)]


def answered(root: Path, name: str, content: str = "x") -> Any:
    (document,) = prepared(root, name, content)
    assert document.error is None
    return json.loads(document.representations[0].chunks[0].text)


@needs_all_of_it
def test_a_taken_over_worker_reaches_no_file_no_network_and_no_process(
    root: Path, tmp_path: Path, taken_over: None
) -> None:
    outside, neighbour = tmp_path / "outside.txt", root / "secret.token"
    for file in (outside, neighbour):
        file.write_text(CANARY)
    paths = {"outside": str(outside), "neighbour": str(neighbour), "root": str(root)}
    tried = answered(root, "try.json", json.dumps(paths))
    assert len(tried) >= 20
    assert {what: result for what, result in tried.items() if result == "done"} == {}
    assert outside.read_text() == CANARY
    assert not (root / "planted.md").exists()


def test_a_worker_starts_without_the_servers_environment_descriptors_and_directory(
    root: Path, tmp_path: Path, taken_over: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MISTRAL_API_KEY", "AWS_SECRET_ACCESS_KEY", "DIR2MCP_AUTH_TOKEN", "PYTHONCANARY", "HOME", "PATH"):
        monkeypatch.setenv(name, f"/{CANARY}/{name}")
    monkeypatch.chdir(tmp_path)
    with ExitStack() as opened:
        for _ in range(20):
            fd = os.open(tmp_path, os.O_RDONLY)
            opened.callback(os.close, fd)
            # Whoever opened it may have meant it for a child of their own.
            os.set_inheritable(fd, True)
        seen = answered(root, "look.txt")
    assert set(seen["environment"]) <= KEPT
    assert CANARY not in json.dumps(seen).replace(str(tmp_path), "")
    # Standard input, output and error, the way back, and the file.
    assert len(seen["descriptors"]) <= 5
    assert seen["directory"] == "/"


def test_relative_entries_of_pythonpath_do_not_reach_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", "src", "/absolute"]))
    assert worker_process.worker_environment()["PYTHONPATH"] == "/absolute"


@pytest.mark.parametrize("name", ["loop.txt", "wait.txt", "trickle.txt"])
def test_files_behind_one_that_never_ends_go_to_other_workers(root: Path, taken_over: None, name: str) -> None:
    others = [f"{number:02}.md" for number in range(40)]
    for each in (name, *others):
        (root / each).write_text(f"# {each}\n\nText of {each}.\n")
    # One that ends only when everything else is done: whoever waits for it waits for ever.
    time_limits = TimeLimits(cpu_s=3600, slow_cpu_s=0.2, slow_wall_s=1.0)
    done = threading.Event()
    outcomes: list[Outcome] = []
    with pool(root, size=2, time_limits=time_limits) as workers:

        def collect() -> None:
            for outcome in workers.prepare(PrepareRequest(each) for each in (name, *others)):
                outcomes.append(outcome)
                if {each.rel_path for each in outcomes if isinstance(each, Finished)} == set(others):
                    done.set()

        thread = threading.Thread(target=collect)
        thread.start()
        assert done.wait(120)
    thread.join(30)
    assert sorted(each.rel_path for each in outcomes if isinstance(each, Prepared)) == others


async def test_other_files_are_found_while_one_takes_its_time(root: Path, taken_over: None) -> None:
    names = [f"{number:02}.md" for number in range(12)]
    for name in names:
        (root / name).write_text(f"# {name}\n\nThe lamp is lit at dusk.\n")
    (root / "wait.txt").write_text("x")
    corpus = OpenCorpus(root)
    async with corpus.opened(wait=False) as opened:
        # It is given up after two minutes, long after the test.
        await eventually(lambda: opened.stats()["indexing"]["indexed"] == len(names))
        assert opened.stats()["indexing"]["running"]

        async def all_found() -> bool:
            return len(await found(opened, "lamp")) == 10

        await eventually(all_found)


def test_a_worker_that_computes_for_too_long_is_killed_however_busy_the_machine_is(
    root: Path, taken_over: None
) -> None:
    time_limits = TimeLimits(cpu_s=0.5, cpu_s_per_megabyte=0.0, wall_factor=1000.0)
    (document,) = prepared(root, "loop.txt", time_limits=time_limits)
    assert document.error == "EXTRACT_FAILED: extracting took longer than 0.5 seconds of CPU time"


@pytest.mark.parametrize("name", ["wait.txt", "trickle.txt"])
def test_a_worker_that_waits_for_too_long_is_killed(root: Path, taken_over: None, name: str) -> None:
    (document,) = prepared(root, name, time_limits=IMPATIENT)
    assert document.error == "EXTRACT_FAILED: extracting took longer than 4 seconds"


@pytest.mark.parametrize("name", ["flood.txt", "long.txt"])
def test_a_worker_that_sends_too_much_is_killed(root: Path, taken_over: None, name: str) -> None:
    documents = prepared(root, name)
    assert documents[-1].error == MISTRUSTED
    assert (documents[-1].status, documents[-1].representations) == ("error", ())


@pytest.mark.parametrize(
    "message",
    [
        "unchanged",
        [],
        {},
        ["finished", 1],
        ["prepared", None, "text", "", "ok", None, []],
        ["prepared", None, "no such type", "", "ok", None, [], []],
        ["prepared", ["../../etc/passwd", 1, 1], "text", "", "ok", None, [], []],
        ["prepared", ["/etc/passwd", 1, 1], "text", "", "ok", None, [], []],
        ["prepared", ["a.md", -1, 1], "text", "", "ok", None, [], []],
        ["prepared", None, "text", "", "error", "no code", [], []],
        ["refused", "a\u0000b", "EXTRACT_FAILED", "why"],
    ],
    ids=repr,
)
def test_an_answer_that_cannot_be_right_is_an_error_of_the_file(root: Path, taken_over: None, message: Any) -> None:
    documents = prepared(root, "raw.json", json.dumps(message))
    assert [(each.rel_path, each.error) for each in documents] == [("raw.json", MISTRUSTED)]


def test_a_file_after_a_worker_that_was_killed_is_prepared(root: Path, taken_over: None) -> None:
    for name in ("long.txt", "good.md"):
        (root / name).write_text("# Good\n\nText.\n")
    with pool(root) as workers:
        documents = {
            each.rel_path: each.error
            for each in workers.prepare([PrepareRequest("long.txt"), PrepareRequest("good.md")])
            if isinstance(each, Prepared)
        }
    assert documents == {"long.txt": MISTRUSTED, "good.md": None}


@pytest.mark.parametrize(("missing", "told"), [("landlock", "Landlock"), ("seccomp", "seccomp")])
def test_a_worker_that_lacks_a_part_gets_files_and_is_told_unless_all_of_it_is_required(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, missing: str, told: str
) -> None:
    monkeypatch.setattr(worker_process, "WORKER_MODULE", f"support.worker_without_{missing}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    (document,) = prepared(root, "a.md", "Text.")
    assert document.error is None
    assert [told in record.__dict__["missing"] for record in caplog.records if "isolated" in record.message] == [True]
    (document,) = prepared(root, "a.md", "Text.", isolation="required")
    assert document.error is not None
    assert document.error.startswith("EXTRACT_FAILED: the extractor could not be isolated; missing: ")
    assert told in document.error
    assert (document.size_bytes, document.representations) == (0, ()), "it is tried again when the kernel has it"


@needs_all_of_it
def test_where_everything_is_there_required_changes_nothing(root: Path) -> None:
    (document,) = prepared(root, "a.md", "Text.", isolation="required")
    assert document.error is None


def test_isolation_can_be_switched_off(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    worker = worker_process.WorkerProcess(WorkerSetup(Instructions((), ()), 1024**3, "off"))
    worker.kill()
    assert worker.isolation == Isolation(0, seccomp=False)
    (document,) = prepared(root, "a.md", "Text.", isolation="off")
    assert document.error is None
    assert not [record for record in caplog.records if "isolated" in record.message], "whoever chose it knows"


@pytest.mark.parametrize("lacks", [Isolation(0, seccomp=True), Isolation(7, seccomp=False)], ids=repr)
async def test_a_kernel_that_lacks_a_part_is_told_before_anything_is_read_where_isolation_is_required(
    root: Path, monkeypatch: pytest.MonkeyPatch, lacks: Isolation
) -> None:
    (root / "a.md").write_text("Text.\n")
    monkeypatch.setattr("armarium.capabilities.corpus.ingest.synchronizer.available_isolation", lambda: lacks)
    corpus = OpenCorpus(root)
    async with corpus.opened(wait=False, ingest=IngestSettings(watch=False, isolation="required")):
        await eventually(lambda: bool(corpus.failures))
    assert corpus.failures[0].code == "ISOLATION_MISSING"
    assert lacks.missing in corpus.failures[0].message
    assert (await OpenCorpus(root).index(ingest=IngestSettings(watch=False)))["indexed"] == 1
