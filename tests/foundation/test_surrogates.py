"""Unpaired surrogates are recognised and replaced."""

from __future__ import annotations

import json

import pytest

from armarium.foundation.surrogates import (
    has_unpaired_surrogate,
    repair_json_text,
    replace_unpaired_surrogates,
)


@pytest.mark.parametrize(("text", "replaced"), [("a\ud83db", "a?b"), ("\udcff", "?"), ("😀 ä", "😀 ä"), ("", "")])
def test_surrogates_are_recognised_and_replaced(text: str, replaced: str) -> None:
    assert has_unpaired_surrogate(text) == (text != replaced)
    assert replace_unpaired_surrogates(text) == replaced


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (rb'"\ud800"', "\ufffd"),
        (rb'"\uD83D\ude00"', "😀"),
        (rb'"\\ud800"', r"\ud800"),
        (rb'"\\\ud800"', "\\\ufffd"),
        (rb'"\ud800\ud83d\ude00\udc00"', "\ufffd😀\ufffd"),
        (rb'"\\ud83d\ude00"', "\\ud83d\ufffd"),
        (b'"\xed\xa0\x80 \xff"', "\ufffd\ufffd\ufffd \ufffd"),
        (b'["\\n", "\xc3\xa4"]', ["\n", "ä"]),
    ],
)
def test_repaired_json_differs_only_where_no_text_can_have_it(text: bytes, value: object) -> None:
    assert json.loads(repair_json_text(text)) == value
