"""Arbitrary requests: the response is always JSON with a code, never a server error."""

from __future__ import annotations

import json
from typing import Any

import anyio
import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from support.notes_api import caller_of, demo

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = ["title", "text", "number", "mode", "limit", "tags", "newest", "x"]
TARGETS = ["/api/demo/notes", "/api/demo/notes/1", "/api/demo/notes/1?title=t", "/api/demo/reports?source=s"]
BODIES = st.binary(max_size=40) | st.one_of(
    JSON_VALUES, st.dictionaries(st.sampled_from(ARGUMENTS), JSON_VALUES, max_size=4)
).map(lambda value: json.dumps(value).encode())


def asked(method: str, target: str, body: bytes = b"") -> httpx.Response:
    async def ask() -> httpx.Response:
        async with caller_of(demo().app) as carol:
            return await carol.request(method, target, content=body, headers={"content-type": "application/json"})

    return anyio.run(ask)


def is_a_proper_answer(answer: httpx.Response) -> bool:
    if answer.status_code == 204:
        return answer.content == b""
    told: Any = answer.json()
    error = told.get("error")
    return answer.status_code < 300 if error is None else 400 <= answer.status_code < 500


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(["POST", "PUT", "PATCH", "DELETE", "GET"]), st.sampled_from(TARGETS), BODIES)
def test_any_body_is_answered_properly(method: str, target: str, body: bytes) -> None:
    assert is_a_proper_answer(asked(method, target, body))


@settings(deadline=None, max_examples=60)
@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#"), max_size=40)
    | st.lists(st.tuples(st.sampled_from(ARGUMENTS), st.text(max_size=5)), max_size=4).map(
        lambda pairs: str(httpx.QueryParams(pairs))
    )
)
def test_any_query_is_answered_properly(query: str) -> None:
    assert is_a_proper_answer(asked("GET", f"/api/demo/notes?{query}"))
