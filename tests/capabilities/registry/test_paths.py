"""Paths are registered in canonical form: relative to the project, with links resolved, and never outside."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from armarium.capabilities.registry.errors import InvalidPath, RegistryError, ValidationError
from armarium.capabilities.registry.paths import ProjectPaths
from armarium.foundation.files.confine import ConfinedRoot
from support.registry_calls import Calls, ServedProject

OUTSIDE = [
    "/etc/passwd", "//etc", "../a.py", "a/../../b.py", "..", "a/b/../../../c", "./../x",
    "C:\\x.py", "c:/x.py", "C:", "\\\\server\\share\\x", "\\x", "..\\..\\x", "a\\..\\..\\x",
    "~", "~/x.py", "~root/x.py",
]  # fmt: skip
NO_NAME = ["a\x00b", "a\nb", "\x1b[2J", "a\x7f", "a\u2028b", "x" * 256, "x/" * 2100 + "a", "\ud800"]


@pytest.fixture
def paths(project: Path) -> Generator[ProjectPaths]:
    with ConfinedRoot(str(project)) as root:
        yield ProjectPaths(root, str(project))


@pytest.mark.parametrize("path", [*OUTSIDE, *NO_NAME])
def test_absolute_escaping_and_impossible_paths_are_invalid(paths: ProjectPaths, path: str) -> None:
    with pytest.raises(InvalidPath) as refused:
        paths.canonical(path)
    assert refused.value.code == "invalid_path"
    assert refused.value.security


@pytest.mark.parametrize("path", ["", ".", "./", "a/..", "src", "src/", "./src/../src", "new/", "inward"])
def test_directories_and_nothing_at_all_are_bad_arguments(paths: ProjectPaths, project: Path, path: str) -> None:
    (project / "src").mkdir()
    (project / "inward").symlink_to("src")
    with pytest.raises(ValidationError):
        paths.canonical(path)


@pytest.mark.parametrize(
    ("path", "canonical"),
    [
        ("./a//b/../c", "a/c"),
        ("a.py", "a.py"),
        ("not/there/yet.py", "not/there/yet.py"),
        ("~$lock.docx", "~$lock.docx"),
        ("...", "..."),
        ("..a", "..a"),
        ("a\\b", "a\\b"),
        ("ünï/cödé.py", "ünï/cödé.py"),
        ("a:b", "a:b"),
    ],
)
def test_a_path_comes_back_without_detours(paths: ProjectPaths, path: str, canonical: str) -> None:
    assert paths.canonical(path) == canonical


@pytest.mark.parametrize("path", ["file.txt/inside", "file.txt/deep/down", ".armarium/x", "./.armarium/x", "own/x"])
def test_what_no_file_of_the_project_can_be_is_a_bad_argument(paths: ProjectPaths, project: Path, path: str) -> None:
    (project / "file.txt").write_text("x")
    (project / ".armarium").mkdir()
    (project / "own").symlink_to(".armarium")
    with pytest.raises(ValidationError):
        paths.canonical(path)


def test_links_inside_the_project_are_followed_to_where_the_file_is(paths: ProjectPaths, project: Path) -> None:
    (project / "src").mkdir()
    (project / "src/a.py").write_text("x")
    (project / "link.py").symlink_to("src/a.py")
    (project / "lib").symlink_to(project / "src")
    assert paths.canonical("link.py") == "src/a.py"
    assert paths.canonical("lib/a.py") == "src/a.py"
    assert paths.canonical("lib/new/b.py") == "src/new/b.py"
    assert paths.canonical("./lib/./a.py") == "src/a.py"


@pytest.mark.parametrize(
    ("path", "canonical"),
    [
        ("deep/../a.py", "src/a.py"),
        ("deep/../new.py", "src/new.py"),
        ("deep/../../top.py", "top.py"),
        ("deep/not/there/../../../a.py", "src/a.py"),
        ("not-there/../deep/x.py", "src/sub/x.py"),
        ("not-there/../deep/../x/y.py", "src/x/y.py"),
        ("src/../src/a.py", "src/a.py"),
    ],
)
def test_a_way_back_begins_where_links_led_to(paths: ProjectPaths, project: Path, path: str, canonical: str) -> None:
    (project / "src/sub").mkdir(parents=True)
    (project / "src/a.py").write_text("x")
    (project / "deep").symlink_to("src/sub")
    assert paths.canonical(path) == canonical
    assert paths.with_cache().canonical(path) == canonical


@pytest.mark.parametrize("path", ["out/../q.py", "out/../../q.py", "back/../q.py", "not-there/../out/../q.py"])
def test_a_way_back_from_outside_is_outside(paths: ProjectPaths, project: Path, path: str) -> None:
    (project / "out").symlink_to("/etc")
    (project / "back").symlink_to(".")
    with pytest.raises(InvalidPath):
        paths.canonical(path)


def test_a_link_to_what_is_not_there_is_where_it_will_be(paths: ProjectPaths, project: Path) -> None:
    (project / "src").mkdir()
    (project / "near").symlink_to("later")
    (project / "far").symlink_to(project / "src/later.py")
    (project / "src/up").symlink_to("../later")
    (project / "chain").symlink_to("src/up")
    (project / "src/from-top").symlink_to(project / "later")
    expected = {"near": "later", "far": "src/later.py", "src/up": "later", "chain": "later", "near/x.py": "later/x.py"}
    expected["src/from-top"] = "later"
    assert {path: paths.canonical(path) for path in expected} == expected
    assert {path: paths.covered(path) for path in expected} == expected
    (project / "later").write_text("x")
    (project / "src/later.py").write_text("x")
    del expected["near/x.py"]
    assert {path: paths.canonical(path) for path in expected} == expected


def test_links_to_what_is_not_there_keep_to_the_same_bounds(paths: ProjectPaths, project: Path) -> None:
    (project / ".armarium").mkdir()
    (project / "own").symlink_to(".armarium/not-there")
    (project / "out").symlink_to(project.parent / "not-there")
    (project / "one").symlink_to("not-there/../two")
    (project / "two").symlink_to("not-there/../one")
    with pytest.raises(ValidationError):
        paths.canonical("own")
    for path in ("out", "not-there/../out", "one", "not-there/../one/x.py"):
        with pytest.raises(InvalidPath):
            paths.canonical(path)


def test_an_absolute_link_is_judged_alike_however_the_project_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / "out").symlink_to("/not-there/x.py")
    (project / "in").symlink_to(project / "later.py")
    with ConfinedRoot(".") as root:
        paths = ProjectPaths(root, ".")
        assert paths.canonical("in") == "later.py"
        with pytest.raises(InvalidPath):
            paths.canonical("out")


@pytest.mark.parametrize("target", ["..", "../outside", "/", "/etc", "/not-there-at-all"])
def test_links_that_lead_outside_are_refused_wherever_they_stand(
    paths: ProjectPaths, project: Path, target: str
) -> None:
    (project / "out").symlink_to(target)
    for path in ("out", "out/x.py", "out/not/there", "./out/../out/x"):
        with pytest.raises(InvalidPath) as refused:
            paths.canonical(path)
        assert str(project) not in refused.value.message


def test_links_that_lead_in_a_circle_are_refused(paths: ProjectPaths, project: Path) -> None:
    (project / "one").symlink_to("two")
    (project / "two").symlink_to("one")
    with pytest.raises(InvalidPath):
        paths.canonical("one/x.py")


def test_a_link_to_a_name_that_is_not_text_is_refused(paths: ProjectPaths, project: Path) -> None:
    with open(os.path.join(os.fsencode(project), b"not-\xff-text"), "w"):
        pass
    os.symlink(b"not-\xff-text", os.path.join(os.fsencode(project), b"link"))
    with pytest.raises(InvalidPath):
        paths.canonical("link")


def test_paths_of_reports_may_be_absolute_or_addresses_inside_the_project(paths: ProjectPaths, project: Path) -> None:
    assert paths.relative(f"{project}/src/a.py") == "src/a.py"
    assert paths.relative(f"file://{project}/src/a%20b.py".replace(" ", "%20")) == "src/a b.py"
    assert paths.relative("src/a.py") == "src/a.py"
    assert paths.relative(f"{project}-other/a.py") == f"{project}-other/a.py"
    assert paths.covered(str(project)) == ""
    assert paths.covered(".") == ""
    assert paths.covered("src/") == "src"


hostile = st.text(st.sampled_from("ab./\\~:é\x00\n %_C"), max_size=12)


@given(path=hostile | st.text(max_size=30))
@example(path="a/../..")
@example(path="\\..")
def test_any_text_is_a_path_inside_the_project_or_refused(path: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.getbasetemp() / "any-text"
    directory.mkdir(exist_ok=True)
    with ConfinedRoot(str(directory)) as root:
        paths = ProjectPaths(root, str(directory))
        try:
            canonical = paths.canonical(path)
        except RegistryError as refused:
            assert refused.code in ("invalid_path", "validation_error")  # noqa: PT017 either is right
            return
        assert paths.canonical(canonical) == canonical
        assert os.path.normpath(os.path.join(directory, canonical)).startswith(f"{directory}/")
        assert canonical.isprintable() or all(char not in canonical for char in "\0\n")


async def test_the_tool_tells_invalid_paths_and_never_where_they_lead(calls: Calls, served: ServedProject) -> None:
    (served.directory / "way-out").symlink_to(served.directory.parent)
    for path in (*OUTSIDE, *NO_NAME[:-1], "way-out/config.yaml", "way-out"):
        assert await calls.code("register_file", path=path) == "invalid_path", path
    assert await calls.code("register_file", path=".") == "validation_error"
    for blank in ("", " ", "  ", "\u2003"):
        assert await calls.code("register_file", path=blank) == "validation_error"
    assert (await calls.ok("list_files", path_prefix="way-out"))["total"] == 0


async def test_links_lead_to_one_record(calls: Calls, served: ServedProject) -> None:
    (served.directory / "real").mkdir()
    (served.directory / "real/a.py").write_text("x")
    (served.directory / "alias").symlink_to("real")
    direct = await calls.ok("register_file", path="real/a.py")
    assert await calls.ok("register_file", path="alias/a.py") == direct
    (served.directory / "early").symlink_to("real/later.py")
    early = await calls.ok("register_file", path="early")
    (served.directory / "real/later.py").write_text("x")
    assert await calls.ok("register_file", path="early") == early
    assert await calls.ok("register_file", path="real/later.py") == early
