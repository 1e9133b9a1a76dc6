"""File events of other capabilities are recorded in the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from armarium.capabilities.registry.errors import Busy
from armarium.capabilities.registry.events.listener import listen_to_events
from armarium.capabilities.registry.lifespan import open_registry
from armarium.capabilities.registry.model import FileFilter, ListedFile
from armarium.capabilities.registry.service import Registry
from armarium.foundation.events import Events, FileChanged, FileMoved, FileScanned, ScannerFinding
from armarium.foundation.refs import FileRef
from armarium.foundation.security.identity import LOCAL, Principal
from armarium.server import open_server
from armarium.settings import Settings
from armarium.surfaces.dispatch import Caller
from support.registry_calls import is_removed
from support.waiting import eventually

DEADLINE_S = 60.0
SCANNER = "armarium-secrets"


class EventSource:
    """Publishes events about a project's files, as other capabilities do."""

    def __init__(self, project: Path) -> None:
        self.project = project.resolve()
        self.events = Events()

    def _ref(self, path: str) -> FileRef:
        return FileRef("root", "workspace", path)

    async def changed(
        self, path: str, change: Any = "modified", *, is_directory: bool = False, by: str = "ada"
    ) -> None:
        host_path = str(self.project / path)
        await self.events.publish(FileChanged(self._ref(path), change, is_directory, Principal(by, (), ""), host_path))

    async def moved(self, before: str, now: str, *, is_directory: bool = False) -> None:
        """As the sandbox publishes it: the move, and then two changes."""
        places = str(self.project / now), str(self.project / before)
        await self.events.publish(FileMoved(self._ref(now), self._ref(before), *places, is_directory, LOCAL))
        await self.changed(before, "removed", is_directory=is_directory)
        await self.changed(now, "created", is_directory=is_directory)

    async def scanned(self, path: str, *findings: tuple[str, int, str]) -> None:
        found = tuple(ScannerFinding(*finding) for finding in findings)
        await self.events.publish(FileScanned(SCANNER, str(self.project / path), found))


@pytest.fixture
def source(project: Path) -> EventSource:
    return EventSource(project)


async def known(registry: Registry) -> dict[str, ListedFile]:
    page = await registry.list_files(FileFilter(), sort="path", limit=1000)
    return {file["path"]: file for file in page["results"]}


async def test_a_file_that_is_written_is_known_with_its_language(source: EventSource, registry: Registry) -> None:
    async with listen_to_events(registry, source.events, source.project) as listener:
        await source.changed("src/app.py", "created")
        await source.changed("notes")
        await listener.wait_until_written()
        files = await known(registry)
    assert {path: file["language"] for path, file in files.items()} == {"src/app.py": "python", "notes": ""}


async def test_folders_and_what_is_outside_the_project_are_not_known(
    source: EventSource, registry: Registry, tmp_path: Path
) -> None:
    beside = EventSource(tmp_path)
    beside.events = source.events
    async with listen_to_events(registry, source.events, source.project):
        await source.changed("src", "created", is_directory=True)
        await beside.changed(f"{source.project.name}-other/a.py")
        await beside.changed("a.py")
        await beside.changed(source.project.name)
    assert await known(registry) == {}


async def test_the_files_of_a_folder_that_was_copied_here_are_known(
    source: EventSource, registry: Registry, project: Path
) -> None:
    for name in ("src/a.py", "src/deep/b.rs", "src/.git/config", "other.py"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).touch()
    (project / "src" / "way-out").symlink_to("/etc")
    async with listen_to_events(registry, source.events, source.project):
        await source.changed("src", "created", is_directory=True)
    assert list(await known(registry)) == ["src/a.py", "src/deep/b.rs"]


async def test_all_events_received_before_the_end_are_written(source: EventSource, registry: Registry) -> None:
    async with listen_to_events(registry, source.events, source.project):
        for number in range(300):
            await source.changed(f"f{number}.py", by=f"agent{number % 3}")
    assert len(await known(registry)) == 300
    await source.changed("after.py")
    assert len(await known(registry)) == 300


async def test_a_cancelled_server_writes_pending_events(source: EventSource, registry: Registry) -> None:
    with anyio.CancelScope() as scope:
        async with listen_to_events(registry, source.events, source.project):
            await source.changed("a.py")
            scope.cancel()
            await anyio.sleep_forever()
    assert list(await known(registry)) == ["a.py"]


async def test_a_moved_file_keeps_its_id_and_its_history(source: EventSource, registry: Registry) -> None:
    async with listen_to_events(registry, source.events, source.project) as listener:
        await source.changed("old.py", "created")
        await source.scanned("old.py", ("github", 3, "aa"))
        await listener.wait_until_written()
        before = (await known(registry))["old.py"]
        await source.moved("old.py", "lib/new.py")
        await source.scanned("old.py")
        await source.scanned("lib/new.py", ("github", 3, "aa"))
        await listener.wait_until_written()
        files = await known(registry)
        events = (await registry.timeline(before["id"]))["results"]
    assert list(files) == ["lib/new.py"]
    assert files["lib/new.py"]["id"] == before["id"]
    assert files["lib/new.py"]["summary"]["open_findings"] == 1
    assert not await is_removed(registry, before["id"])
    renames = [event["data"] for event in events if event["data"].get("field") == "path"]
    assert [(rename["old_value"], rename["new_value"]) for rename in renames] == [("old.py", "lib/new.py")]


async def test_a_moved_folder_moves_all_files_below_it(source: EventSource, registry: Registry) -> None:
    paths = ["src/a.py", "src/deep/b.py", "src2/c.py"]
    async with listen_to_events(registry, source.events, source.project) as listener:
        for path in paths:
            await source.changed(path)
        await listener.wait_until_written()
        before = await known(registry)
        await source.moved("src", "lib", is_directory=True)
        await listener.wait_until_written()
        after = await known(registry)
    assert list(after) == ["lib/a.py", "lib/deep/b.py", "src2/c.py"]
    assert [file["id"] for file in after.values()] == [before[path]["id"] for path in paths]


async def test_a_removed_file_stays_known_and_has_no_open_findings(source: EventSource, registry: Registry) -> None:
    async with listen_to_events(registry, source.events, source.project) as listener:
        await source.scanned("src/leak.env", ("github", 1, "aa"))
        await listener.wait_until_written()
        (file,) = (await known(registry)).values()
        await source.changed("src", "removed", is_directory=True)
        await listener.wait_until_written()
        assert await known(registry) == {}
        counts = (await registry.get_file(file["id"]))["summary"]
        assert (counts["total_findings"], counts["open_findings"]) == (1, 0)
        assert await is_removed(registry, file["id"])
        await source.changed("src/leak.env", "created")
        await listener.wait_until_written()
        (file,) = (await known(registry)).values()
    assert not await is_removed(registry, file["id"])


async def test_what_our_scanner_finds_opens_moves_and_closes(source: EventSource, registry: Registry) -> None:
    async with listen_to_events(registry, source.events, source.project) as listener:
        await source.scanned("a.env", ("github", 2, "aa"), ("github", 7, "bb"), ("npm", 2, "cc"))
        await source.scanned("b.env", ("jwt", 1, "dd"))
        await listener.wait_until_written()
        page = await registry.list_findings(scan_source=SCANNER)
        assert {(each["file_path"], each["rule_id"], each["line_start"]) for each in page["results"]} == {
            ("a.env", "github", 2),
            ("a.env", "github", 7),
            ("a.env", "npm", 2),
            ("b.env", "jwt", 1),
        }
        assert {each["severity"] for each in page["results"]} == {"high"}
        await source.scanned("a.env", ("github", 5, "aa"))
        await listener.wait_until_written()
        page = await registry.list_findings(scan_source=SCANNER, status="open")
        assert {
            (each["file_path"], each["rule_id"], each["line_start"], each["seen_count"]) for each in page["results"]
        } == {
            ("a.env", "github", 5, 2),
            ("b.env", "jwt", 1, 1),
        }
        await source.scanned("a.env")
        await source.scanned("b.env")
        await listener.wait_until_written()
        assert (await registry.list_findings(status="open"))["total"] == 0


async def test_a_path_that_cannot_be_kept_costs_only_itself(source: EventSource, registry: Registry) -> None:
    async with listen_to_events(registry, source.events, source.project):
        await source.changed("a.py")
        await source.changed("line\nbreak.py")
        await source.changed("b.py")
    assert list(await known(registry)) == ["a.py", "b.py"]


async def test_a_judgement_on_one_credential_says_nothing_about_the_next_in_its_place(
    source: EventSource, registry: Registry
) -> None:
    async with listen_to_events(registry, source.events, source.project) as listener:
        await source.scanned("a.env", ("github", 2, "example"), ("github", 9, "other"))
        await listener.wait_until_written()
        example = next(each for each in (await registry.list_findings())["results"] if each["line_start"] == 2)
        await registry.update_finding(example["id"], "false_positive", "ada")
        await source.scanned("a.env", ("github", 2, "real"), ("github", 5, "example"))
        await listener.wait_until_written()
        found = {(each["line_start"], each["status"]) for each in (await registry.list_findings())["results"]}
    assert found == {(2, "open"), (5, "false_positive"), (9, "fixed")}


async def test_events_received_while_the_registry_is_busy_are_written_later_in_order(
    source: EventSource, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_changed, refusals = registry.record_changed, [Busy("busy") for _ in range(50)]

    async def sometimes(paths: Any, actor: str) -> None:
        if refusals:
            raise refusals.pop()
        await record_changed(paths, actor)

    monkeypatch.setattr(registry, "record_changed", sometimes)
    async with listen_to_events(registry, source.events, source.project, retry_interval_s=0.0) as listener:
        await source.changed("old.py")
        await source.moved("old.py", "new.py")
        await listener.wait_until_written()
        assert list(await known(registry)) == ["new.py"]
    assert not refusals


async def test_a_server_that_ends_while_the_registry_is_busy_gives_up_and_logs_it(
    source: EventSource, registry: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def never(paths: Any, actor: str) -> None:
        raise Busy("busy")

    monkeypatch.setattr(registry, "record_changed", never)
    async with listen_to_events(registry, source.events, source.project, shutdown_timeout_s=0.0):
        await source.changed("a.py")
    assert "file events were not recorded" in caplog.messages


async def test_a_registry_that_is_busy_for_a_while_loses_nothing(
    source: EventSource, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_changed, refusals = registry.record_changed, [Busy("busy"), Busy("busy")]

    async def sometimes(paths: Any, actor: str) -> None:
        if refusals:
            raise refusals.pop()
        await record_changed(paths, actor)

    monkeypatch.setattr(registry, "record_changed", sometimes)
    async with listen_to_events(registry, source.events, source.project, retry_interval_s=0.0):
        await source.changed("a.py")
    assert list(await known(registry)) == ["a.py"]


async def test_a_registry_that_can_only_be_read_listens_to_nothing(source: EventSource, project: Path) -> None:
    async with open_registry(project) as registry:
        await registry.register_file("a.py", "ada")
    async with (
        open_registry(project, read_only=True) as registry,
        listen_to_events(registry, source.events, source.project) as listener,
    ):
        assert not source.events.is_heard(FileScanned)
        await source.changed("b.py")
        await listener.wait_until_written()
        assert list(await known(registry)) == ["a.py"]


async def test_what_an_agent_does_in_the_sandbox_and_the_corpus_finds_is_known(project: Path) -> None:
    """Through the whole server: an agent writes a credential, moves the file, and takes the credential out."""
    secret = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    settings = Settings.model_validate(
        {
            "sandbox": {"roots": [{"name": "w", "path": str(project), "allowed_tools": ["*"]}], "landlock": "off"},
            "registry": {"project": str(project)},
            "corpus": {"root": str(project), "embedding": {"provider": "local"}, "ingest": {"watch": False}},
            "state_dir": str(project.parent / "state"),
            "audit": {"enabled": False},
        }
    )
    with anyio.fail_after(DEADLINE_S):
        async with open_server(settings) as server:

            async def call(tool: str, **arguments: Any) -> Any:
                result = (await server.dispatcher.outcome(Caller(LOCAL, "test"), tool, arguments)).result
                assert not result.get("isError"), result
                return result["structuredContent"]

            async def until(path: str, high: int) -> Any:
                async def only_file() -> Any:
                    files = (await call("list_files"))["results"]
                    return [(file["path"], file["summary"]["high"]) for file in files] == [(path, high)] and files[0]

                return await eventually(only_file, what=f"{path} has {high} findings")

            await call("write_file", root="w", path="deploy.sh", content=f"login {secret}\n", mode="overwrite")
            written = await until("deploy.sh", 1)
            await call("move", source_root="w", source_path="deploy.sh", dest_root="w", dest_path="run.sh")
            assert (await until("run.sh", 1))["id"] == written["id"]
            await call("write_file", root="w", path="run.sh", content="echo it is gone\n", mode="overwrite")
            await until("run.sh", 0)
    async with open_registry(project) as registry:
        (finding,) = (await registry.list_findings())["results"]
    assert (finding["scan_source"], finding["status"]) == (SCANNER, "fixed")
    kept = b"".join(file.read_bytes() for file in (project / ".armarium").iterdir())
    assert secret.encode() not in kept
