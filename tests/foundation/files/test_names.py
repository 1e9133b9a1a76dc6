"""Every name that is not UTF-8 has exactly one escaped form, which is reversible."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from armarium.foundation.files.names import NotAnEscape, escape_name, unescape_name

# Bytes that matter here, so that escapes, their look-alikes and halves of characters meet.
_PARTS = st.sampled_from(
    [b"a", b"\\", b"\\x", b"\\xe9", b"\\xE9", b"\\x5c", b"\\x5C", b"\\x41", b"\xe9", b"\xc3",
     b"\xc3\xa9", b"\xff", b"x5c", b"5", b"/"]
)  # fmt: skip
_NAMES = st.lists(_PARTS, max_size=8).map(b"".join) | st.binary(max_size=20)


@given(_NAMES)
@example(b"\\xe9")
@example(b"\xc3\\xa9")
def test_a_name_comes_back_from_its_spelling(raw: bytes) -> None:
    name = os.fsdecode(raw)
    text = escape_name(name)
    text.encode("utf-8")  # JSON can carry it
    assert unescape_name(text) == name


@given(_NAMES, _NAMES)
def test_two_names_never_look_the_same(one: bytes, other: bytes) -> None:
    same = escape_name(os.fsdecode(one)) == escape_name(os.fsdecode(other))
    assert same == (one == other)


@given(st.text(max_size=20) | _NAMES.map(lambda raw: raw.decode("utf-8", "backslashreplace")))
def test_a_text_is_one_name_or_none(text: str) -> None:
    try:
        name = unescape_name(text)
    except NotAnEscape:
        return
    assert escape_name(name).lower() == text.lower()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain.txt", "plain.txt"),
        ("zoë.txt".encode(), "zoë.txt"),
        (b"back\\slash", "back\\slash"),
        (b"\\x41", "\\x41"),
        (b"caf\xe9.txt", "caf\\xe9.txt"),
        (b"caf\\xe9.txt", "caf\\x5cxe9.txt"),
        (b"caf\\x5cxe9.txt", "caf\\x5cx5cxe9.txt"),
    ],
)
def test_names_are_spelled_as_documented(raw: bytes, text: str) -> None:
    assert escape_name(os.fsdecode(raw)) == text
    assert os.fsencode(unescape_name(text)) == raw


@pytest.mark.parametrize("text", ["\\xc3\\xa9", "a\\x5cb", "\udce9", "\\x5c"])
def test_a_second_spelling_of_a_name_is_refused(text: str) -> None:
    with pytest.raises(NotAnEscape):
        unescape_name(text)
