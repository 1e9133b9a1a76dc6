"""Unpaired surrogates: JSON can contain them in strings, and UTF-8 cannot encode them."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def has_unpaired_surrogate(text: str) -> bool:
    """Whether the text contains a surrogate, so that it cannot be encoded as UTF-8."""
    return _SURROGATE.search(text) is not None


def replace_unpaired_surrogates(text: str) -> str:
    """The text with "?" in place of every surrogate, so that it can be encoded as UTF-8."""
    return text.encode("utf-8", "replace").decode()
