"""Unpaired surrogates are recognised and replaced."""

from __future__ import annotations

import pytest

from armarium.foundation.surrogates import has_unpaired_surrogate, replace_unpaired_surrogates


@pytest.mark.parametrize(("text", "replaced"), [("a\ud83db", "a?b"), ("\udcff", "?"), ("😀 ä", "😀 ä"), ("", "")])
def test_surrogates_are_recognised_and_replaced(text: str, replaced: str) -> None:
    assert has_unpaired_surrogate(text) == (text != replaced)
    assert replace_unpaired_surrogates(text) == replaced
