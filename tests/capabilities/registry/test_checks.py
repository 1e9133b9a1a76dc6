"""The checks of `armarium doctor`, and what they declare unusable."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from armarium.capabilities.registry.errors import Damaged, RegistryUnusable
from armarium.capabilities.registry.lifespan import open_registry
from armarium.capabilities.registry.manifest import MANIFEST, state_paths
from armarium.capabilities.registry.settings import RegistrySettings, prefix_of
from armarium.capabilities.registry.storage.database import RegistryDatabase
from armarium.capability import CheckResult, Facilities
from armarium.foundation.events import Events
from support.registry_calls import ACTOR, found, scanned


@pytest.fixture
def file(project: Path) -> Path:
    return project / ".armarium" / "registry.sqlite"


async def test_damage_inside_the_file_is_found_before_a_start(project: Path, file: Path) -> None:
    async with open_registry(project) as registry:
        await scanned(registry, *(found("a.py", line=number + 1) for number in range(2000)))
    pages = file.stat().st_size // 4096
    with file.open("r+b") as damaged:
        damaged.seek(4096 * (pages // 2))
        damaged.write(b"\xff" * 4096 * (pages // 4))
    assert [finding.state for finding in examined(project)] == ["ok", "fail"]


def make_another_version(file: Path) -> None:
    RegistryDatabase(file).close()
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def make_rubbish(file: Path) -> None:
    file.write_bytes(b"this is no database, whatever its name says " * 100)
    file.chmod(0o600)


@pytest.mark.parametrize(
    ("make", "error"), [(make_another_version, RegistryUnusable), (make_rubbish, Damaged)]
)  # fmt: skip
async def test_an_unusable_file_is_reported_and_not_changed(
    project: Path, file: Path, make: Callable[[Path], None], error: type[Exception]
) -> None:
    file.parent.mkdir()
    make(file)
    before = file.read_bytes()
    with pytest.raises(error):
        async with open_registry(project):
            pass
    assert file.read_bytes() == before
    assert [finding.state for finding in examined(project)] == ["ok", "fail"]


async def test_a_project_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RegistryUnusable):
        async with open_registry(tmp_path / "nowhere"):
            pass
    assert [(finding.subject, finding.state) for finding in examined(tmp_path / "nowhere")] == [
        ("registry project", "fail")
    ]


def examined(project: Path) -> list[CheckResult]:
    section = RegistrySettings(project=str(project))
    return list(MANIFEST.check(section, Facilities(Events(), project)))


async def test_a_good_project_passes_the_checks_and_is_not_changed_by_them(project: Path) -> None:
    assert [(finding.subject, finding.state) for finding in examined(project)] == [("registry project", "ok")]
    assert list(project.iterdir()) == []
    async with open_registry(project) as registry:
        await registry.register_file("a.py", ACTOR)
        assert [finding.state for finding in examined(project)] == ["ok", "ok"]
    assert [finding.state for finding in examined(project)] == ["ok", "ok"]
    assert list(MANIFEST.check(None, Facilities(Events(), project))) == []


def test_the_directory_of_the_registry_is_declared_as_state(project: Path) -> None:
    assert state_paths(RegistrySettings(project=str(project))) == [project / ".armarium"]


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("Light House", "light-house"), ("a__b", "a-b"), ("-x-", "x"), ("日本", "project"), ("x" * 99, "x" * 40)],
)
def test_ids_begin_with_the_directorys_name(tmp_path: Path, name: str, prefix: str) -> None:
    assert prefix_of(tmp_path / name) == prefix
