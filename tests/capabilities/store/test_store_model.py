"""Random changes and looks agree, step by step, with a dictionary of paths and bytes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from store_calls import Files

from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.transactions import StoreDatabase

MAX_FILE, MAX_PROJECT = 40, 90
PATHS = ["/a", "/a-b", "/a.b", "/a/b", "/a/b/c", "/a/b-c", "/d", "/d/e", "/d/e/f"]
paths = st.sampled_from(PATHS)
anywhere = st.sampled_from(["", *PATHS])
texts = st.text(alphabet="xyä€😀\n", max_size=9)
offsets = st.integers(0, 30)


class Refused(Exception):
    """What the model expects to be refused, with the code."""


class Model:
    """What the contract says, over one dictionary."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def below(self, path: str) -> list[str]:
        return sorted(file for file in self.files if file.startswith(path + "/"))

    def kind(self, path: str) -> str:
        return "FILE" if path in self.files else "DIRECTORY" if self.below(path) else ""

    def lies_below_file(self, path: str) -> bool:
        return any(path.startswith(file + "/") for file in self.files)

    def write(self, path: str, content: bytes, mode: str, offset: int) -> int:
        if mode == "TRUNCATE" and offset:
            raise Refused("INVALID_OFFSET")
        if self.below(path):
            raise Refused("IS_DIRECTORY")
        if self.lies_below_file(path):
            raise Refused("NOT_DIRECTORY")
        old = self.files.get(path, b"")
        if mode == "APPEND":
            new = old + content
        elif mode == "TRUNCATE":
            new = content
        else:
            if offset > len(old):
                raise Refused("INVALID_OFFSET")
            new = old[:offset] + content + old[offset + len(content) :]
            try:
                new.decode()
            except UnicodeDecodeError:
                raise Refused("INVALID_OFFSET") from None
        if len(new) > MAX_FILE:
            raise Refused("PAYLOAD_TOO_LARGE")
        if sum(map(len, self.files.values())) - len(old) + len(new) > MAX_PROJECT:
            raise Refused("QUOTA_EXCEEDED")
        self.files[path] = new
        return len(content)

    def delete(self, path: str, recursive: bool) -> int:
        if path == "":
            raise Refused("PERMISSION_DENIED" if recursive else "INVALID_PATH")
        if path in self.files:
            gone = [path]
        elif not (gone := self.below(path)):
            raise Refused("NOT_FOUND")
        elif not recursive:
            raise Refused("NOT_EMPTY")
        for file in gone:
            del self.files[file]
        return len(gone)

    def rename(self, source: str, target: str, overwrite: bool) -> int:
        if source == target:
            return 0
        is_file, moving = source in self.files, [source] if source in self.files else self.below(source)
        if not moving:
            raise Refused("NOT_FOUND")
        if not is_file and target.startswith(source + "/"):
            raise Refused("INVALID_PATH")
        if self.lies_below_file(target):
            raise Refused("NOT_DIRECTORY")
        if self.below(target) or (target in self.files and not (is_file and overwrite)):
            raise Refused("ALREADY_EXISTS")
        moved = {target + file.removeprefix(source): self.files.pop(file) for file in moving}
        self.files |= moved
        return len(moved)

    def read(self, path: str, offset: int, length: int) -> bytes:
        if path not in self.files:
            raise Refused("IS_DIRECTORY" if self.below(path) else "NOT_FOUND")
        content = self.files[path]
        return content[offset:] if length < 0 else content[offset : offset + length]

    def list(self, path: str, depth: int) -> list[tuple[str, str]]:
        kind = self.kind(path)
        if path and not kind:
            raise Refused("NOT_FOUND")
        if depth == 0:
            return [(path, kind)] if kind else []
        if kind == "FILE":
            raise Refused("NOT_DIRECTORY")
        entries: set[tuple[str, str]] = set()
        for file in self.below(path):
            names = file.removeprefix(path).split("/")[1:]
            entries |= {(f"{path}/{'/'.join(names[:level])}", "DIRECTORY") for level in range(1, len(names))}
            entries.add((file, "FILE"))
        return sorted(entry for entry in entries if entry[0].removeprefix(path).count("/") <= depth)


def answer_or_refusal(expected: Callable[[], Any]) -> Any:
    """What the model says, also when it says no."""
    try:
        return expected()
    except Refused as refused:
        return refused


def store_machine(runner: asyncio.Runner, database: StoreDatabase) -> type[RuleBasedStateMachine]:
    """A machine that does everything twice: in the store, and in the model."""

    class Machine(RuleBasedStateMachine):
        @initialize()
        def begin(self) -> None:
            limits = {"max_file_bytes": MAX_FILE, "max_project_bytes": MAX_PROJECT, "history": {"versions": 3}}
            self.files = Files(database, secrets.token_hex(32), limits)
            self.model = Model()
            self.last_version = 0

        def same(self, expected: Callable[[], Any], tool: str, **arguments: Any) -> dict[str, Any] | None:
            """The answer, when the model has one as well; otherwise both must refuse alike."""
            wanted = answer_or_refusal(expected)
            if isinstance(wanted, Refused):
                assert runner.run(self.files.code(tool, **arguments)) == str(wanted)
                return None
            return runner.run(self.files.ok(tool, **arguments)) | {"wanted": wanted}

        @rule(path=paths, content=texts, mode=st.sampled_from(["APPEND", "OVERWRITE", "TRUNCATE"]), offset=offsets)
        def write(self, path: str, content: str, mode: str, offset: int) -> None:
            offset = 0 if mode == "TRUNCATE" and offset % 4 else offset
            adds_nothing = path in self.model.files and not content and mode != "TRUNCATE"
            done = self.same(
                lambda: self.model.write(path, content.encode(), mode, offset),
                "write", path=path, content=content, mode=mode, offset=offset,
            )  # fmt: skip
            if done:
                assert done["bytes_written"] == done["wanted"]
                assert adds_nothing or done["version"] > self.last_version
                self.last_version = max(done["version"], self.last_version)

        @rule(path=paths, content=texts)
        def append(self, path: str, content: str) -> None:
            self.same(
                lambda: self.model.write(path, content.encode(), "APPEND", 0), "write", path=path, content=content
            )

        @rule(path=anywhere, recursive=st.booleans())
        def delete(self, path: str, recursive: bool) -> None:
            done = self.same(lambda: self.model.delete(path, recursive), "delete", path=path, recursive=recursive)
            assert done is None or done["deleted_count"] == done["wanted"]

        @rule(source=paths, goal=paths, overwrite=st.booleans())
        def rename(self, source: str, goal: str, overwrite: bool) -> None:
            done = self.same(
                lambda: self.model.rename(source, goal, overwrite),
                "rename", from_path=source, to_path=goal, overwrite=overwrite,
            )  # fmt: skip
            assert done is None or done["moved_count"] == done["wanted"]

        @rule(path=anywhere, offset=offsets, length=st.integers(-1, 20))
        def read(self, path: str, offset: int, length: int) -> None:
            done = self.same(
                lambda: self.model.read(path, offset, length), "read", path=path, offset=offset, length=length
            )
            if done:
                whole = self.model.files[path]
                assert done["content"].encode() == whole[done["offset"] : done["end"]]
                assert done["content"] in done["wanted"].decode(errors="ignore") or done["offset"] == offset
                assert done["size"] == len(whole)

        @rule(path=anywhere, depth=st.integers(0, 3), limit=st.integers(1, 12))
        def list_(self, path: str, depth: int, limit: int) -> None:
            done = self.same(lambda: self.model.list(path, depth), "list", path=path, depth=depth, limit=limit)
            if done:
                listed = [(entry["path"], entry["type"]) for entry in done["entries"]]
                assert listed == done["wanted"][:limit]
                assert done["has_more"] == (len(done["wanted"]) > limit)

        @rule(path=anywhere)
        def stat(self, path: str) -> None:
            answer = runner.run(self.files.ok("stat", path=path))
            assert answer["type"] == self.model.kind(path)
            assert answer["exists"] == bool(answer["type"])
            assert answer["size"] == len(self.model.files.get(path, b""))

        @rule(path=paths)
        def bring_back(self, path: str) -> None:
            history = runner.run(self.files.result("history", path=path))
            if history.get("isError"):
                assert path not in self.model.files
                return
            oldest = history["structuredContent"]["versions"][-1]
            restored = runner.run(self.files.result("restore", path=path, version=oldest["version"]))
            if not restored.get("isError"):
                content = runner.run(self.files.text(path)).encode()
                assert len(content) == oldest["size"]
                self.model.files[path] = content

        @invariant()
        def counts_every_byte(self) -> None:
            if hasattr(self, "model"):
                total = sum(map(len, self.model.files.values()))
                assert runner.run(self.files.counted_and_real_bytes()) == (total, total)

        def teardown(self) -> None:
            if hasattr(self, "model"):
                for path, content in self.model.files.items():
                    assert runner.run(self.files.text(path)).encode() == content

    return Machine


@pytest.mark.hypothesis  # for `make soak`: it runs what is marked so with random examples
@pytest.mark.timeout(600)
def test_any_sequence_of_calls_does_what_a_dictionary_does(store_dsn: str) -> None:
    with asyncio.Runner() as runner:
        pool = runner.run(connect(store_dsn, size=2))
        database = StoreDatabase(pool, lock_timeout_ms=5000, on_lock_wait=lambda seconds: None)
        run_state_machine_as_test(
            store_machine(runner, database),
            settings=settings(
                max_examples=100, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )
        runner.run(database.aclose())
