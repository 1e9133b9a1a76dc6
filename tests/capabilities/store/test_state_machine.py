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

from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.transactions import StoreDatabase
from support.store_calls import Files
from support.store_model import MAX_FILE, PATHS, Model, Refused, answer_or_refusal

paths = st.sampled_from(PATHS)
anywhere = st.sampled_from(["", *PATHS])
texts = st.text(alphabet="xyä€😀\n", max_size=9)
offsets = st.integers(0, 30)


def store_machine(runner: asyncio.Runner, database: StoreDatabase) -> type[RuleBasedStateMachine]:
    """A machine that does everything twice: in the store, and in the model."""

    class Machine(RuleBasedStateMachine):
        @initialize()
        def begin(self) -> None:
            limits = {"max_file_bytes": MAX_FILE, "history": {"versions": 3}}
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


@pytest.mark.contract("S7-5")
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
        runner.run(database.pool.aclose())
