"""Damaged state files: no crash, no wrong result without a warning, and a repair."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from armarium.capabilities.corpus.lifespan import open_service
from armarium.capabilities.corpus.settings import CorpusSettings, EmbeddingSettings, IngestSettings
from armarium.foundation.events import Events
from support import state_trials

TOPICS = ["harbour", "lighthouse", "rigging", "compass", "tide", "anchor", "galley", "chart", "beacon", "keel"]
NOT_STATE = {"index.lock", ".gitignore"}
TRIAL_DEADLINE_S = 120.0
IN_MAKE_TEST = 40
IN_SOAK = 1000


def write_files(directory: Path, seed: int) -> None:
    chance = random.Random(seed)
    directory.mkdir()
    for number in range(12):
        first, second, third = chance.sample(TOPICS, 3)
        (directory / f"{number:02d}-{first}.md").write_text(
            f"# The {first}, number {number} of {seed}\n\nEvery {first} has a {second} of its own; rule {number}.\n\n"
            f"## On the {third}\n\nNobody leaves the {third} without a {first} in reach. Case {number * 17 + seed}.\n"
        )
    for number in range(4):
        (directory / f"winch{number}.py").write_text(
            f'class Winch{number}:\n    """Turns a winch of {seed}{" slowly" * number}."""\n\n'
            f"    def turn_{number}(self) -> int:\n        return {number * seed}\n"
        )


async def index(root: Path, *, then: Path | None = None, killed: Path | None = None) -> None:
    """Index the directory; copy the state to `then` when it is closed, to `killed` while it is still open."""
    settings = CorpusSettings(
        root=str(root), embedding=EmbeddingSettings(provider="local"), ingest=IngestSettings(watch=False)
    )
    async with open_service(settings, Events(), indexing="background") as corpus:
        await corpus.until_indexed()
        if killed is not None:
            shutil.copytree(root / ".dir2mcp", killed)
    if then is not None:
        shutil.copytree(root / ".dir2mcp", then)


@dataclass(frozen=True)
class States:
    """States of one directory, and of another that has nothing to do with it."""

    root: Path
    sound: Path
    """As a server leaves it that was asked to end."""
    killed: Path
    """As a server leaves it that was killed."""
    earlier: Path
    """As it was before some files changed."""
    foreign: Path
    expected: list[list[str]]
    """What each query finds."""

    def are_repaired(self, found: Any) -> bool:
        """Whether these are the results again. Deleted chunks still count in lexical scores, so after a detour
        over other contents the order may differ behind the first."""
        return found is not None and all(
            (got[:1], sorted(got)) == (wanted[:1], sorted(wanted))
            for got, wanted in zip(found, self.expected, strict=True)
        )


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> States:
    base = tmp_path_factory.mktemp("states")
    write_files(base / "root", 1)
    write_files(base / "other", 2)
    with ExitStack() as patches:
        for each in state_trials.cheap_models():
            patches.enter_context(each)
        anyio.run(lambda: index(base / "other", then=base / "foreign"))
        (base / "root/late.md").write_text("The anchor of the late ferry.\n")
        anyio.run(lambda: index(base / "root", then=base / "earlier"))
        (base / "root/late.md").write_text("The anchor of the late ferry lies in the harbour.\n")
        (base / "root/later.md").write_text("A beacon, a chart and a compass for the keel.\n")
        anyio.run(lambda: index(base / "root", then=base / "sound", killed=base / "killed"))
    with Trials(base / "root") as trials:
        told = trials.run(base / "sound")
    for step in ("reader", "leader", "after"):
        assert told[step]["warnings"] == [], told
        assert told[step]["first"] == told["reader"]["first"]
    assert all(told["reader"]["first"])
    return States(
        base / "root",
        base / "sound",
        base / "killed",
        base / "earlier",
        base / "foreign",
        told["reader"]["first"],
    )


class Trials:
    """A process that tries states; another takes its place when it crashes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate(timeout=TRIAL_DEADLINE_S)

    def run(self, state: Path) -> dict[str, Any]:
        """What came of it; `crash` when the process ended."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(str(state)) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if line:
            return json.loads(line)
        code = process.wait(TRIAL_DEADLINE_S)
        process.stdin.close()
        process.stdout.close()
        self._process = None
        return {"crash": code}

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            path = os.pathsep.join([str(Path(state_trials.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.state_trials", str(self._root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": path},
            )
        return self._process


def flipped(file: Path, chance: random.Random, count: int) -> str:
    data = bytearray(file.read_bytes())
    for _ in range(count if data else 0):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)
    return f"{count} bits flipped"


def truncated(file: Path, chance: random.Random) -> str:
    size = chance.randrange(file.stat().st_size + 1)
    os.truncate(file, size)
    return f"truncated to {size}"


def zeroed(file: Path, chance: random.Random) -> str:
    data = bytearray(file.read_bytes())
    begin = chance.randrange(len(data) + 1)
    end = min(len(data), begin + chance.choice([16, 512, 4096, len(data)]))
    data[begin:end] = bytes(end - begin)
    file.write_bytes(data)
    return f"zeroed from {begin} to {end}"


def deleted(file: Path, chance: random.Random) -> str:
    file.unlink()
    return "deleted"


def replaced(file: Path, chance: random.Random, state: Path, other: Path) -> str:
    inside = file.relative_to(state)
    beside = sorted(each for each in (other / inside).parent.glob(f"*{file.suffix}") if each.is_file())
    stand_in = other / inside if (other / inside).exists() else chance.choice(beside) if beside else None
    if stand_in is None:
        return deleted(file, chance)
    shutil.copyfile(stand_in, file)
    return f"replaced by {stand_in.name} of {other.name}"


def mutate(states: States, state: Path, chance: random.Random) -> str:
    """Damage one file of a copy; what was done."""
    found = [file for file in state.rglob("*") if file.is_file() and file.name not in NOT_STATE]
    # Names in the words index are made by chance; a seed must mean the same kind of file each time.
    files = sorted(found, key=lambda file: (file.parent.name, file.suffix, file.name))
    # As often the database, which has as many rows as the others have files.
    database = [file for file in files if file.name.startswith("meta.sqlite")]
    file = chance.choice(database if chance.random() < 0.4 else files)
    done = chance.choice(
        [
            lambda: flipped(file, chance, 1),
            lambda: flipped(file, chance, 1),
            lambda: flipped(file, chance, 8),
            lambda: flipped(file, chance, 64),
            lambda: truncated(file, chance),
            lambda: zeroed(file, chance),
            lambda: deleted(file, chance),
            lambda: replaced(file, chance, state, states.foreign),
            lambda: replaced(file, chance, state, states.earlier),
        ]
    )()
    return f"{file.relative_to(state)} {done}"


def fault_of(told: dict[str, Any], states: States) -> str | None:
    """What is wrong with what came of a damaged state."""
    if "crash" in told or "failure" in told:
        return "it crashed"
    warned = False
    for step in ("reader", "leader"):
        seen = told[step]
        # What the reader has repaired already, it has warned of.
        if warned and states.are_repaired(seen.get("first")):
            continue
        warned = bool(seen["warnings"]) or "error" in seen or not seen.get("complete", True)
        if seen.get("first") != states.expected and not warned:
            return f"the {step} found something else and did not say so"
    if not states.are_repaired(told["leader"].get("last")):
        return "it was not repaired"
    if not states.are_repaired(told["after"].get("first")) or told["after"]["warnings"]:
        return "it was repaired for the moment only"
    return None


def _shortened(told: dict[str, Any], expected: list[Any]) -> dict[str, Any]:
    """Without what is as it should be."""
    return {
        step: {name: value for name, value in seen.items() if value != expected} if isinstance(seen, dict) else seen
        for step, seen in told.items()
    }


def campaign(states: States, tmp_path: Path, seed: int, mutations: int) -> None:
    chance = random.Random(seed)
    faults: list[str] = []
    unnoticed = 0
    with Trials(states.root) as trials:
        for number in range(mutations):
            base = states.sound if number % 2 else states.killed
            shutil.copytree(base, tmp_path / "state")
            what = f"seed {seed}, mutation {number} of {base.name}: {mutate(states, tmp_path / 'state', chance)}"
            told = trials.run(tmp_path / "state")
            fault = fault_of(told, states)
            if fault is not None:
                faults.append(f"{what}: {fault}: {json.dumps(_shortened(told, states.expected))}")
            elif not told["reader"]["warnings"] and "error" not in told["reader"]:
                unnoticed += 1
            shutil.rmtree(tmp_path / "state")
    print(f"{mutations} mutations with seed {seed}: {len(faults)} faults, {unnoticed} without effect on a reader")
    assert not faults, "\n".join([f"{len(faults)} faults", *faults])


@pytest.mark.timeout(600)
def test_forty_mutations_of_the_state_neither_crash_nor_change_results_unnoticed(
    states: States, tmp_path: Path
) -> None:
    campaign(states, tmp_path, seed=4, mutations=IN_MAKE_TEST)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_thousand_mutations_of_the_state_neither_crash_nor_change_results_unnoticed(
    states: States, tmp_path: Path
) -> None:
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(1 << 32))
    campaign(states, tmp_path, seed, IN_SOAK)


def as_format_1(state: Path) -> None:
    """The state as the format without checksums had it."""
    with closing(sqlite3.connect(state / "meta.sqlite")) as database, database:
        vectors = database.execute("SELECT model, text_hash, vector FROM embeddings").fetchall()
        database.executemany(
            "UPDATE embeddings SET vector = ? WHERE model = ? AND text_hash = ?",
            [(vector[:-5], model, text_hash) for model, text_hash, vector in vectors],
        )
        database.execute("UPDATE spans SET extra_json = NULL")
        database.execute("DELETE FROM settings WHERE key GLOB '*#' OR key GLOB '*_tally' OR key GLOB '*_seal'")
        database.execute("UPDATE settings SET value = '1' WHERE key = 'index_format_version'")


def test_a_state_without_checksums_opens_and_gets_them(states: States, tmp_path: Path) -> None:
    shutil.copytree(states.sound, tmp_path / "state")
    as_format_1(tmp_path / "state")
    with Trials(states.root) as trials:
        told = trials.run(tmp_path / "state")
    assert states.are_repaired(told["leader"]["last"])
    assert states.are_repaired(told["after"]["first"])
    assert told["after"]["warnings"] == []
    with closing(sqlite3.connect(states.root / ".dir2mcp/meta.sqlite")) as database:
        (version,) = database.execute("SELECT value FROM settings WHERE key = 'index_format_version'").fetchone()
        (unchecked,) = database.execute("SELECT count(*) FROM spans WHERE extra_json IS NULL").fetchone()
    assert (version, unchecked) == ("2", 0)


def test_words_and_vectors_of_a_database_that_was_lost_are_not_used(states: States, tmp_path: Path) -> None:
    shutil.copytree(states.sound, tmp_path / "state")
    (tmp_path / "state/meta.sqlite").unlink()
    with Trials(states.root) as trials:
        told = trials.run(tmp_path / "state")
    assert states.are_repaired(told["leader"]["last"])
    assert states.are_repaired(told["after"]["first"])
    assert any(
        "does not belong to meta.sqlite" in line for line in told["reader"]["warnings"] + told["leader"]["warnings"]
    )


@pytest.mark.parametrize("kind", ["text", "code"])
def test_no_damaged_vector_file_reaches_the_library_that_would_crash(states: States, tmp_path: Path, kind: str) -> None:
    shutil.copytree(states.sound, tmp_path / "state")
    file = tmp_path / f"state/vectors_{kind}.hnsw"
    data = bytearray(file.read_bytes())
    data[64:1088] = b"\xff" * 1024
    file.write_bytes(data)
    with Trials(states.root) as trials:
        told = trials.run(tmp_path / "state")
    assert told["reader"]["first"] == states.expected
    assert any(f"vectors_{kind}" in line or "vector index" in line for line in told["reader"]["warnings"])


def test_a_damaged_chunk_is_left_out_and_its_document_prepared_again(states: States, tmp_path: Path) -> None:
    shutil.copytree(states.sound, tmp_path / "state")
    with closing(sqlite3.connect(tmp_path / "state/meta.sqlite")) as database, database:
        database.execute("UPDATE chunks SET text = replace(text, 'late ferry', 'mate berry') WHERE deleted = 0")
    with Trials(states.root) as trials:
        told = trials.run(tmp_path / "state")
    without = [[hit for hit in hits if not hit.startswith("late.md")] for hits in told["reader"]["first"]]
    assert told["reader"]["first"] == without
    assert any("late.md" in line for line in told["reader"]["warnings"])
    assert states.are_repaired(told["leader"]["last"])
    assert states.are_repaired(told["after"]["first"])
    assert told["after"]["warnings"] == []
