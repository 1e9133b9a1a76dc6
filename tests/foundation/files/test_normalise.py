"""Paths are normalised lexically, before anything is opened."""

from __future__ import annotations

import pytest

from armarium.foundation.files.confine import normalise
from armarium.foundation.files.errors import InvalidPath, PathEscapesRoot


@pytest.mark.parametrize(
    ("path", "relative"),
    [
        ("", ""),
        ("/", ""),
        ("///", ""),
        (".", ""),
        ("./", ""),
        ("/.", ""),
        ("a", "a"),
        ("/a", "a"),
        ("a/", "a"),
        ("a//b", "a/b"),
        ("./a/./b/.", "a/b"),
        ("a/../b", "b"),
        ("a/..", ""),
        ("a/b/../../c", "c"),
        ("/etc/passwd", "etc/passwd"),
        (".hidden", ".hidden"),
        ("a/.hidden/b", "a/.hidden/b"),
        ("..a", "..a"),
        ("a/...", "a/..."),
        ("a..", "a.."),
        (" ", " "),
        ("%2e%2e%2fetc%2fpasswd", "%2e%2e%2fetc%2fpasswd"),
        ("%2e%2e/x", "%2e%2e/x"),
        ("..\\..\\etc\\passwd", "..\\..\\etc\\passwd"),
        ("\u2025/\uff0e\uff0e/x", "\u2025/\uff0e\uff0e/x"),
        ("über/日本.txt", "über/日本.txt"),
        ("line\nbreak\x7f", "line\nbreak\x7f"),
        ("n" * 255, "n" * 255),
        ("é" * 127, "é" * 127),
        ("ab/" * 1364, "ab/" * 1363 + "ab"),
    ],
)
def test_a_path_is_understood_relative_to_the_root(path: str, relative: str) -> None:
    assert normalise(path) == relative
    assert normalise(relative) == relative


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../",
        "/..",
        "../x",
        "../../etc/passwd",
        "/../../etc/passwd",
        "a/../..",
        "a/../../etc/passwd",
        "./..",
        "a/b/../../../x",
        "//..//x",
        "é/../../x",
        "../root/notes.txt",
    ],
)
def test_going_above_the_root_by_name_is_refused(path: str) -> None:
    with pytest.raises(PathEscapesRoot) as refusal:
        normalise(path)
    assert refusal.value.message == f"path resolves outside root boundary: {path}"
    assert refusal.value.private["attempted"] == path
    assert refusal.value.private["resolved"].startswith("..")


@pytest.mark.parametrize(
    "path",
    [
        "\0",
        "file\0.txt",
        "a/\0/../b",
        "../\0",
        "\ud800",
        "a/\udce9/b",
        "../\udfff",
        "n" * 256,
        "a/" + "n" * 256 + "/../b",
        "é" * 128,
        "ab/" * 1365 + "a",
        "x" * 100_000,
        "../" * 100_000,
    ],
)
def test_a_path_no_file_can_have_is_invalid_and_is_not_echoed(path: str) -> None:
    with pytest.raises(InvalidPath) as refusal:
        normalise(path)
    refusal.value.message.encode("ascii")
    assert len(refusal.value.message) < 100
    refusal.value.private["attempted"].encode()
    assert len(refusal.value.private["attempted"]) < 2000
