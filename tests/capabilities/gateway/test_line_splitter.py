"""Lines of a server's output: complete, and never with more memory than the limit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.capabilities.gateway.upstreams.process import LineSplitter, OversizedLine


@given(st.lists(st.binary(max_size=30)), st.integers(1, 20))
def test_however_the_output_is_cut_into_chunks_the_lines_are_the_same(chunks: list[bytes], limit: int) -> None:
    lines = LineSplitter(limit)
    found = [line for chunk in [*chunks, b"\n"] for line in lines.split(chunk)]
    assert [line if isinstance(line, bytes) else "too long" for line in found] == [
        line if len(line) <= limit else "too long" for line in b"".join(chunks).split(b"\n")
    ]


@pytest.mark.parametrize("order", [["jsonrpc", "id", "result"], ["result", "jsonrpc", "id"], ["id", "result"]])
def test_a_line_that_is_too_long_still_tells_which_request_it_answers(order: list[str]) -> None:
    message = {"jsonrpc": "2.0", "id": 41, "result": {"id": 7, "text": "x" * 10_000, "last": {"id": 8}}}
    line = json.dumps({key: message[key] for key in order}).encode() + b"\n"
    lines = LineSplitter(5_000)
    (found,) = [cut for start in range(0, len(line), 700) for cut in lines.split(line[start : start + 700])]
    assert isinstance(found, OversizedLine)
    assert found.request_id() == 41


@pytest.mark.parametrize(
    "line",
    [b"plain noise " * 1000, json.dumps({"result": {"id": 5}, "padding": "x" * 9000, "more": 1}).encode()],
)
def test_a_line_that_is_no_answer_tells_no_request(line: bytes) -> None:
    (found,) = LineSplitter(100).split(line + b"\n")
    assert isinstance(found, OversizedLine)
    assert found.request_id() is None
