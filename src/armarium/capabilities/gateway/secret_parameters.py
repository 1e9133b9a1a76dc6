"""Parameters that carry a caller's secret, and how secrets are removed from values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

SECRET_PARAMETERS: Final = ("user_token", "api_key", "bearer", "oauth_token", "capability_token")
"""The names of parameters that carry a secret. They are sent only to a server that declares them; they never reach a
log, the audit trail, an error or a file."""
MAX_SECRET_LENGTH: Final = 16_384

SECRET_NAME: Final = re.compile(r"(?i)(token|key|secret|passw|pwd|credential|auth|bearer|cookie)")
"""Names of variables, headers and flags whose value is probably a secret."""

_MARK = "[removed]"
MIN_MASKED_LENGTH: Final = 4
"""Shorter secrets are replaced only where they are whole words in texts, and never in field names."""


def secrets_in(arguments: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name in SECRET_PARAMETERS if isinstance(value := arguments.get(name), str) and value}


def scrub(value: Any, secrets: Iterable[str]) -> Any:
    """A JSON value with every occurrence of the secrets replaced."""
    # Longest first: one secret may be the prefix of another.
    ordered = sorted((each for each in secrets if each), key=len, reverse=True)
    if not ordered:
        return value
    long = [re.escape(each) for each in ordered if len(each) >= MIN_MASKED_LENGTH]
    words = [rf"(?<!\w){re.escape(each)}(?!\w)" for each in ordered if len(each) < MIN_MASKED_LENGTH]
    in_names = re.compile("|".join(long)) if long else None
    return _scrub(value, in_names, re.compile("|".join(long + words)))


def _scrub(value: Any, in_names: re.Pattern[str] | None, in_texts: re.Pattern[str] | None) -> Any:
    if isinstance(value, str):
        return in_texts.sub(_MARK, value) if in_texts else value
    if isinstance(value, list):
        return [_scrub(each, in_names, in_texts) for each in value]  # pyright: ignore[reportUnknownVariableType] any JSON
    if isinstance(value, dict):
        inner: dict[Any, Any] = value  # pyright: ignore[reportUnknownVariableType] any JSON
        return {_scrub(name, in_names, in_names): _scrub(each, in_names, in_texts) for name, each in inner.items()}
    return value
