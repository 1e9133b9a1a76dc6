"""Matching known paths against a file filter."""

from __future__ import annotations

import pytest

from armarium.foundation.files.glob_patterns import path_matcher


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.py", "a.py", True),
        ("*.py", "deep/down/a.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/deep/a.py", False),
        ("src/**/*.py", "src/deep/down/a.py", True),
        ("src/**/*.py", "src/a.py", True),
        ("src/**", "src/deep/a.md", True),
        ("src/**", "other/a.md", False),
        ("**/test_*.py", "tests/unit/test_a.py", True),
        ("{docs,src}/*.md", "docs/a.md", True),
        ("{docs,src}/*.md", "tests/a.md", False),
        ("[!a]*.txt", "b.txt", True),
        ("[!a]*.txt", "a.txt", False),
    ],
)
def test_a_path_that_is_known_already_is_matched_without_a_walk(pattern: str, path: str, fits: bool) -> None:
    assert path_matcher(pattern)(path) is fits
