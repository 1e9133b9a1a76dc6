"""Unpaired surrogates: JSON can contain them in strings, and UTF-8 cannot encode them."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")
_HIGH, _LOW = rb"\\u[dD][89aAbB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
# Also text that looks like one: after an escaped backslash, what follows may be unpaired after all.
_PERHAPS_UNPAIRED = re.compile(rb"%b(?!%b)|(?<!%b)%b|\\\\u[dD]" % (_HIGH, _LOW, _HIGH, _LOW))
# Every escape, so that the backslash of `\\ud800` is not taken for the start of one.
_ESCAPE = re.compile(rb"%b%b|(%b|%b)|\\." % (_HIGH, _LOW, _HIGH, _LOW), re.DOTALL)


def has_unpaired_surrogate(text: str) -> bool:
    """Whether the text contains a surrogate, so that it cannot be encoded as UTF-8."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def replace_unpaired_surrogates(text: str) -> str:
    """The text with "?" in place of every surrogate, so that it can be encoded as UTF-8."""
    return text.encode("utf-8", "replace").decode()


def repair_json_text(text: bytes) -> bytes:
    """JSON text that every parser accepts: with the replacement character in place of bytes that are not UTF-8 and of
    escaped surrogates that are unpaired. Text without these is returned as it is."""
    valid = text if text.isascii() else text.decode("utf-8", "replace").encode()
    # The expression is slow, and most texts contain no escaped surrogate.
    if (rb"\ud" in valid or rb"\uD" in valid) and _PERHAPS_UNPAIRED.search(valid) is not None:
        valid = _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], valid)
    return text if valid == text else valid
