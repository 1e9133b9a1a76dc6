"""Hostile arguments get an error with a stable code. They change nothing, reveal nothing and stop nothing."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.client import RawSession, ToolClient, require_silence_about, require_snake_case
from support.sandbox_server import Box
from support.trees import Picture, make_tree, picture

KNOWN_CODES = {
    "INVALID_ARGUMENT", "UNKNOWN_ROOT", "TOOL_NOT_ALLOWED", "READ_ONLY_ROOT", "PATH_ESCAPES_ROOT", "INVALID_PATH",
    "PATH_IGNORED", "NOT_FOUND", "ALREADY_EXISTS", "NOT_A_DIRECTORY", "IS_A_DIRECTORY", "NOT_A_REGULAR_FILE",
    "CANNOT_REMOVE_ROOT", "FILE_TOO_LARGE", "PATCH_FAILED", "INVALID_PATTERN", "CONFLICT", "PERMISSION_DENIED",
    "STORAGE_FAILURE", "DEADLINE_EXCEEDED",
}  # fmt: skip
"""Every code the sandbox may answer with; INTERNAL is a fault, so it is not here."""

GOOD: dict[str, dict[str, Any]] = {
    "list_roots": {},
    "list_folder": {"root": "workspace", "path": "folder"},
    "read_file": {"root": "workspace", "path": "a.txt"},
    "read_files": {"root": "workspace", "paths": ["a.txt"]},
    "write_file": {"root": "workspace", "path": "a.txt", "content": "x"},
    "remove_file": {"root": "workspace", "path": "a.txt"},
    "patch_file": {"root": "workspace", "path": "a.txt", "patch": "--- a\n+++ a\n@@ -1 +1 @@\n-old\n+new\n"},
    "create_folder": {"root": "workspace", "path": "new"},
    "remove_folder": {"root": "workspace", "path": "folder"},
    "stat_file": {"root": "workspace", "path": "a.txt"},
    "hash_file": {"root": "workspace", "path": "a.txt", "algorithm": "sha256"},
    "permissions_file": {"root": "workspace", "path": "a.txt"},
    "copy": {"source_root": "workspace", "source_path": "a.txt", "dest_root": "dest", "dest_path": "b.txt"},
    "move": {"source_root": "workspace", "source_path": "a.txt", "dest_root": "dest", "dest_path": "b.txt"},
    "grep": {"root": "workspace", "pattern": "old"},
    "glob": {"root": "workspace", "pattern": "**"},
}
"""A call of each tool that would succeed; each hostile value takes the place of one argument."""

PATH_ARGUMENTS = ("path", "source_path", "dest_path", "paths")

ANY_TYPE: list[Any] = [
    None, True, False, 0, -1, 1.5, 1e300, 2**63, 2**64, -(2**63), "", "text", [], ["text"], [[]], {}, {"a": 1},
]  # fmt: skip
"""One value of every JSON type, and numbers beyond every bound."""

DEEP: Any = json.loads("[" * 200 + "]" * 200)
NESTED: Any = json.loads('{"a":' * 200 + "1" + "}" * 200)

PATHS_THAT_MUST_FAIL = {
    "..": "PATH_ESCAPES_ROOT",
    "../": "PATH_ESCAPES_ROOT",
    "../../etc/passwd": "PATH_ESCAPES_ROOT",
    "/../etc/passwd": "PATH_ESCAPES_ROOT",
    "a/../../outside/secret.txt": "PATH_ESCAPES_ROOT",
    "folder/../../" * 3: "PATH_ESCAPES_ROOT",
    "a.txt\0": "INVALID_PATH",
    "\0": "INVALID_PATH",
    "../\0": "INVALID_PATH",
    "folder/\0/../../../etc/passwd": "INVALID_PATH",
    "a" * 100_000: "INVALID_PATH",
    "a/" * 50_000: "INVALID_PATH",
    "../" * 34_000: "INVALID_PATH",
    "x" * 256: "INVALID_PATH",
    "é" * 128: "INVALID_PATH",
    "out/secret.txt": "PATH_ESCAPES_ROOT",
    "out/../secret-of-nobody/../../x": "PATH_ESCAPES_ROOT",
}

PATHS_THAT_ARE_NAMES = [
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%2f..%2fetc%2fpasswd", "%252e%252e%252f", "..\\..\\etc\\passwd", "C:\\Windows",
    "\\\\server\\share", "file:///etc/passwd", "~/.ssh/id_rsa", "$HOME", "`id`", "$(id)", "; rm -rf *", "-rf", "--help",
    "*", "?", "[a-z]", "{a,b}", "new\nline", "tab\there", "\u202egnp.exe", "👩‍👩‍👧.txt", "cafe\u0301.txt",
    "caf\u00e9.txt", "\ufeff.txt", "\u2025/\u2025/etc", "．．/．．/etc", "....//....//etc/passwd", ".../...//x", " ",
    " a ", "con", "nul", "x" * 255, "/etc/passwd", "//etc/passwd", "\x7f\x1b[31m",
]  # fmt: skip
"""Harmless: each is a name inside the root, so the call may succeed; it must never leave the root."""


@pytest.fixture(scope="module", autouse=True)
def _no_surprises(box: Box) -> Generator[None]:
    """Whatever the tests of this module send, nothing fails in a way that the server did not foresee."""
    start = len(box.server.log)
    yield
    assert not [line for line in box.server.log[start:] if line["level"] == "ERROR"]
    assert box.server.other_output == []


@pytest.fixture
def tree(roots: Box, workspace: Path) -> Path:
    """The workspace with a file, a folder and, as in `dest`, a link that leads out."""
    make_tree(workspace, {"a.txt": "old\n", "folder/inner.txt": "inner\n"})
    for root in (workspace, roots.root("dest")):
        (root / "out").symlink_to(roots.outside)
    return workspace


def state(roots: Box) -> tuple[Picture, Picture]:
    """Both roots that the calls name."""
    return picture(roots.root("workspace")), picture(roots.root("dest"))


async def checked_error(client: ToolClient, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The error of a call that must fail."""
    error = await client.fails(tool, **arguments)
    assert error["code"] in KNOWN_CODES
    assert len(error["message"]) < 10_000
    return error


async def checked_answer(client: ToolClient, tool: str, arguments: dict[str, Any]) -> None:
    """A call that may fail or succeed; what it must not do is checked by the client and here."""
    result = await client.result(tool, arguments)
    if result.is_error:
        assert result.structured_content["error"]["code"] in KNOWN_CODES


async def schemas(client: ToolClient) -> dict[str, dict[str, Any]]:
    listed = await client.mcp.list_tools()
    return {tool.name: tool.input_schema for tool in listed.tools}


def fits(value: Any, schema: dict[str, Any], *, required: bool) -> bool:
    """Whether the value has the type an argument asks for; bounds are tested on their own."""
    if value is None:
        return not required
    match schema["type"]:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)
        case "array":
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
    raise AssertionError(f"no hostile values for {schema}")


@pytest.mark.parametrize("tool", GOOD)
async def test_an_argument_of_the_wrong_type_is_named_and_nothing_happens(
    client: ToolClient, roots: Box, tree: Path, tool: str
) -> None:
    schema = (await schemas(client))[tool]
    before = state(roots)
    sent = 0

    for name, expected in schema.get("properties", {}).items():
        for value in (*ANY_TYPE, DEEP, NESTED):
            if fits(value, expected, required=name in schema.get("required", ())):
                continue
            error = await checked_error(client, tool, GOOD[tool] | {name: value})
            assert error["code"] == "INVALID_ARGUMENT"
            assert f"`{name}" in error["message"]
            sent += 1

    assert state(roots) == before
    assert sent > 20 or tool == "list_roots"


@pytest.mark.parametrize("tool", GOOD)
async def test_a_number_out_of_bounds_is_refused(client: ToolClient, roots: Box, tree: Path, tool: str) -> None:
    schema = (await schemas(client))[tool]
    before = state(roots)

    for name, expected in schema.get("properties", {}).items():
        if expected.get("type") != "integer":
            continue
        for value in (expected["minimum"] - 1, expected["maximum"] + 1, -(10**18), 10**30, 1e308):
            error = await checked_error(client, tool, GOOD[tool] | {name: value})
            assert error["code"] == "INVALID_ARGUMENT"
            assert f"`{name}`" in error["message"]

    assert state(roots) == before


@pytest.mark.parametrize("tool", GOOD)
async def test_the_largest_allowed_number_does_no_harm(client: ToolClient, roots: Box, tree: Path, tool: str) -> None:
    schema = (await schemas(client))[tool]

    for name, expected in schema.get("properties", {}).items():
        if expected.get("type") == "integer":
            for value in (expected["minimum"], float(expected["minimum"]), expected["maximum"]):
                await checked_answer(client, tool, GOOD[tool] | {name: value})


@pytest.mark.parametrize("tool", GOOD)
async def test_an_unknown_argument_is_named(client: ToolClient, roots: Box, tree: Path, tool: str) -> None:
    before = state(roots)

    for name in ("rooot", "Path", "__proto__", "x" * 10_000, "", "../../etc", "\0"):
        error = await checked_error(client, tool, GOOD[tool] | {name: "x"})
        assert error["code"] == "INVALID_ARGUMENT"
        assert "unknown argument" in error["message"]

    assert state(roots) == before


def path_arguments(tool: str, path: str) -> list[dict[str, Any]]:
    """Calls of the tool with the path in the place of each argument that takes one."""
    calls = [GOOD[tool] | {name: path} for name in PATH_ARGUMENTS if name in GOOD[tool] and name != "paths"]
    if tool in ("grep", "glob"):
        calls.append(GOOD[tool] | {"path": path})
    return calls


@pytest.mark.parametrize("tool", [tool for tool in GOOD if path_arguments(tool, "")])
async def test_a_path_out_of_the_root_is_refused_and_nothing_happens(
    client: ToolClient, roots: Box, tree: Path, tool: str
) -> None:
    before = state(roots)

    for path, code in PATHS_THAT_MUST_FAIL.items():
        for arguments in path_arguments(tool, path):
            error = await checked_error(client, tool, arguments)
            assert error["code"] == code, f"{path[:60]!r}"

    assert state(roots) == before


async def test_bad_paths_among_several_are_told_one_by_one(client: ToolClient, tree: Path) -> None:
    answer = await client.call("read_files", root="workspace", paths=[*PATHS_THAT_MUST_FAIL, "a.txt"])

    codes = [file["error"]["code"] for file in answer["files"][:-1]]
    assert codes == list(PATHS_THAT_MUST_FAIL.values())
    assert answer["files"][-1]["content"] == "old\n"


@pytest.mark.parametrize("tool", [tool for tool in GOOD if path_arguments(tool, "")])
async def test_an_odd_name_stays_a_name_inside_the_root(client: ToolClient, roots: Box, tree: Path, tool: str) -> None:
    for path in PATHS_THAT_ARE_NAMES:
        for arguments in path_arguments(tool, path):
            await checked_answer(client, tool, arguments)
            make_tree(tree, {"a.txt": "old\n", "folder/inner.txt": "inner\n"})

    assert {path.name for path in roots.base.iterdir()} == {"roots", "outside", "config.yaml"}


@pytest.mark.parametrize("path", PATHS_THAT_ARE_NAMES)
async def test_an_odd_name_can_be_written_and_read_back(client: ToolClient, roots: Box, tree: Path, path: str) -> None:
    written = await client.call("write_file", root="workspace", path=path, content="odd")
    read = await client.call("read_file", root="workspace", path=path)
    listed = await client.call("glob", root="workspace", pattern="**", type_filter="file")

    assert read["content"] == "odd"
    assert written["path"] == read["path"]
    assert (tree / path.lstrip("/")).read_text() == "odd"
    assert written["path"] in [match["path"] for match in listed["matches"]]


@pytest.mark.parametrize("tool", [tool for tool in GOOD if tool != "list_roots"])
async def test_no_odd_name_is_a_root(client: ToolClient, roots: Box, tree: Path, tool: str) -> None:
    before = state(roots)
    name = "source_root" if tool in ("copy", "move") else "root"

    for root in (
        "",
        "Workspace",
        "workspace/",
        "../workspace",
        "workspace\0",
        "*",
        "r" * 100_000,
        "wörkspace",
        "👩‍👩‍👧",
    ):
        error = await checked_error(client, tool, GOOD[tool] | {name: root})
        assert error["code"] == "UNKNOWN_ROOT"
        assert error["message"].startswith("unknown root: ")

    assert state(roots) == before


HOSTILE_PATTERNS = [
    "[", "(", ")", "*", "a{1001}", "a{2,1}", "(?P<n", "\\", "(?<=a)b", "(a)\\1", "[[:nope:]]", "(?i", "x" * 100_000,
    "(" * 2000 + ")" * 2000, "((a{1,100}){1,100}){1,100}", "\\p{Nope}", "\\C",
]  # fmt: skip


@pytest.mark.parametrize("pattern", HOSTILE_PATTERNS)
async def test_a_hostile_pattern_is_refused_or_searched_in_time(
    client: ToolClient, roots: Box, tree: Path, pattern: str
) -> None:
    make_tree(tree, {"long.txt": "a" * 100_000 + "\n"})

    await checked_answer(client, "grep", {"root": "workspace", "pattern": pattern, "timeout_seconds": 10})
    await checked_answer(client, "glob", {"root": "workspace", "regex": pattern, "timeout_seconds": 10})
    await checked_answer(client, "glob", {"root": "workspace", "pattern": pattern, "timeout_seconds": 10})
    await checked_answer(
        client, "grep", {"root": "workspace", "pattern": "a", "glob_filter": pattern, "timeout_seconds": 10}
    )


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+$", "(.*a){20}", "^(([a-z])+.)+[A-Z]([a-z])+$"])
async def test_patterns_that_explode_elsewhere_take_linear_time(
    client: ToolClient, roots: Box, tree: Path, pattern: str
) -> None:
    make_tree(tree, {"long.txt": "a" * 50_000 + "!\n"})

    found = await client.call("grep", root="workspace", pattern=pattern, path=".", timeout_seconds=20)

    assert found["timed_out"] is False


@pytest.mark.parametrize(
    "pattern", ["{a,b" * 500, "**/" * 1000 + "x", "{a,b}" * 40, "*a" * 200, "{{{{{{a}}}}}}", "[!]", "[]"]
)
async def test_globs_that_explode_elsewhere_are_answered(
    client: ToolClient, roots: Box, tree: Path, pattern: str
) -> None:
    make_tree(tree, {"a" * 200: "", "a/" * 50 + "x": ""})

    await checked_answer(client, "glob", {"root": "workspace", "pattern": pattern, "timeout_seconds": 10})


HOSTILE_PATCHES = [
    "", "\n", "garbage", "--- a\n", "--- a\n+++ b\n", "--- a\n+++ b\n@@\n", "--- a\n+++ b\n@@ -1 +1 @@\n",
    "--- a\n+++ b\n@@ -99999999999999999999 +1 @@\n-x\n+y\n", "--- a\n+++ b\n@@ -1,99999999999 +1 @@\n-old\n",
    "--- a\n+++ b\n@@ -0 +0 @@\n", "--- a\n+++ b\n@@ --1 +1 @@\n-old\n+x\n", "@@ -1 +1 @@\n-old\n+new\n" * 2,
    "--- ../../etc/passwd\n+++ ../../etc/passwd\n@@ -1 +1 @@\n-x\n+y\n", "GIT binary patch\nliteral 0\n", "\0" * 100,
    "--- a\n+++ b\n@@ -1 +1 @@\n-old\r\n+new\n", "--- a\n+++ /dev/null\n@@ -1 +0,0 @@\n-other\n",
    "--- a\n+++ b\n@@ -1 +1 @@\n" + "-x\n" * 50_000,
]  # fmt: skip


@pytest.mark.parametrize("patch", HOSTILE_PATCHES, ids=range(len(HOSTILE_PATCHES)))
async def test_a_patch_that_is_none_changes_nothing(client: ToolClient, roots: Box, tree: Path, patch: str) -> None:
    before = state(roots)

    error = await checked_error(client, "patch_file", {"root": "workspace", "path": "a.txt", "patch": patch})

    assert error["code"] == "PATCH_FAILED"
    assert state(roots) == before


# What a client library would not even send


SURROGATES = ['"\\ud800"', '"\\udfff.txt"', '"a/\\ud83d/b"', '"\\udc80\\ud800"']


@pytest.mark.parametrize("tool", [tool for tool in GOOD if tool != "list_roots"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_an_unpaired_surrogate_is_refused(roots: Box, tree: Path, tool: str, surrogate: str) -> None:
    before = state(roots)
    with RawSession.opened(roots.server.url) as session:
        for name in GOOD[tool]:
            arguments = json.dumps(GOOD[tool] | {name: "HERE"}).replace('"HERE"', surrogate)
            if name == "paths":
                arguments = arguments.replace(surrogate, f"[{surrogate}]")
            require_clean_refusal(roots, session.call(tool, arguments))

    assert state(roots) == before


@pytest.mark.parametrize(
    "arguments",
    [
        "NaN", "Infinity", "-Infinity", "1e999", "01", "'a'", "{", "", "nul", "[1,]", '"\\x41"', '"\t"', "1" * 5000,
        "[" * 100_000, '{"a":' * 100_000, "null", "[]", '"text"', "1",
    ],
)  # fmt: skip
def test_arguments_that_are_no_object_are_refused(roots: Box, tree: Path, arguments: str) -> None:
    before = state(roots)
    with RawSession.opened(roots.server.url) as session:
        require_clean_refusal(roots, session.call("write_file", arguments))
        in_its_place = f'{{"root": "workspace", "path": "a.txt", "content": {arguments}}}'
        if arguments != '"text"':
            require_clean_refusal(roots, session.call("write_file", in_its_place))

    assert state(roots) == before


@pytest.mark.parametrize(
    "name", ["", "no_such_tool", "read_file\0", "READ_FILE", "__class__", "x" * 100_000, "../read_file"]
)
def test_an_unknown_tool_is_refused(roots: Box, name: str) -> None:
    with RawSession.opened(roots.server.url) as session:
        answer = session.call(name, "{}")

    assert answer.status_code == 200
    assert answer.json()["error"]["code"] == -32602
    assert len(answer.text) < 1000


def require_clean_refusal(roots: Box, answer: Any) -> None:
    """An error of the protocol or of the tool, with nothing in it that is not the caller's to know."""
    require_silence_about(roots.never_said, answer.text)
    body = answer.json()
    if answer.status_code == 200 and "result" in body:
        error = body["result"]["structuredContent"]
        assert body["result"]["isError"] is True
        assert error["error"]["code"] in KNOWN_CODES
        require_snake_case(error)
    else:
        assert answer.status_code in (200, 400)
        assert body["error"]["code"] in (-32700, -32600, -32602)
    assert len(answer.text) < 10_000


# Endless paths

NAMES = st.one_of(
    st.sampled_from(["..", ".", "", "a.txt", "folder", "out", "inner.txt", "%2e%2e", "..\\", "...", "new", "\0", "~"]),
    st.text(max_size=20),
)
SOME_PATHS = st.builds("/".join, st.lists(NAMES, max_size=8))


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
@given(path=SOME_PATHS)
async def test_no_path_leads_out_and_none_surprises_the_server(
    client: ToolClient, roots: Box, tree: Path, path: str
) -> None:
    before = roots.outside_picture()

    for tool in ("read_file", "list_folder", "stat_file", "write_file"):
        arguments = {"root": "workspace", "path": path} | ({"content": "w"} if tool == "write_file" else {})
        await checked_answer(client, tool, arguments)

    assert roots.outside_picture() == before
    assert {entry.name for entry in roots.base.iterdir()} == {"roots", "outside", "config.yaml"}
    assert {entry.name for entry in (roots.base / "roots").iterdir()} == set(roots_of(roots))


def roots_of(roots: Box) -> list[str]:
    line = roots.server.wait_for_log(lambda line: line["msg"] == "listening")
    return line["roots"]


async def test_the_server_answers_as_before(client: ToolClient, tree: Path) -> None:
    read = await client.call("read_file", root="workspace", path="a.txt")

    assert read["content"] == "old\n"
