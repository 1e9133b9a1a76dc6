"""Redaction of arguments in logs."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from armarium.surfaces.prepared_tool import redacted

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
CONTENT = frozenset({"content"})


def test_content_is_reduced_to_length_and_hash() -> None:
    content = "ä" * 1000
    (shown,) = redacted({"content": content}, {"content"}, CONTENT).values()
    assert shown == {"length": 2000, "sha256": hashlib.sha256(content.encode()).hexdigest()}


def test_short_content_is_marked_as_content_all_the_same() -> None:
    assert redacted({"content": ""}, {"content"}, CONTENT)["content"]["length"] == 0


def test_other_arguments_stay_as_they_are() -> None:
    arguments = {"path": "a/b.txt", "count": 3, "deep": True, "names": ["x", "y"]}
    assert redacted(arguments, arguments, CONTENT) == arguments


def test_whatever_is_long_is_reduced_whoever_it_belongs_to() -> None:
    arguments: dict[str, Any] = {"path": "p" * 5000, "paths": ["q" * 50] * 100, "where": {"k": "v" * 3000}}
    shown = redacted(arguments, arguments)
    assert [entry["length"] > 2000 for entry in shown.values()] == [True] * 3
    assert len(json.dumps(shown)) < 1500


@given(st.dictionaries(st.sampled_from(["path", "content", "other"]), JSON))
def test_content_is_never_written(arguments: dict[str, Any]) -> None:
    shown = redacted(arguments, arguments, CONTENT)
    assert set(shown) == set(arguments)
    if "content" in shown:
        assert set(shown["content"]) == {"length", "sha256"}


def test_arguments_that_nobody_knows_are_counted_and_neither_named_nor_hashed() -> None:
    hostile = {"n" * 300_000: 1} | {f"argument {number}": 1 for number in range(5_000)}
    assert redacted({"path": "/a", **hostile}, {"path"}) == {"path": "/a", "[unknown]": 5_001}


def test_of_a_secret_there_is_not_even_a_hash() -> None:
    token = frozenset({"token"})
    written = redacted({"token": "canary", "path": "/a"}, {"token", "path"}, token, token)
    assert written == {"token": "[hidden]", "path": "/a"}
