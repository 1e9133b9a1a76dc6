"""Sensitive parameters: which there are, to whom they are given, and how they are kept out of everything else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from armarium.foundation.schema import JsonSchema

SENSITIVE: Final = ("user_token", "api_key", "bearer", "oauth_token", "capability_token")
"""Parameters that carry a secret of the caller's. They are passed on to a server that asks for them, and else nowhere:
not to a log, the audit trail, an error or a file."""
LONGEST_SECRET: Final = 16_384

_MARK = "[removed]"
SHORTEST_KEY: Final = 4
"""Shorter ones are only looked for as whole words of what is said: replacing each letter of them, or the names of
fields, would make nonsense of it."""


def secrets_in(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The sensitive parameters among some arguments."""
    return {name: value for name in SENSITIVE if isinstance(value := arguments.get(name), str) and value}


def declared_by(schema: JsonSchema, secrets: Mapping[str, str]) -> dict[str, str]:
    """Those that a tool's input schema asks for by name."""
    declared = schema.get("properties", {})
    return {name: value for name, value in secrets.items() if isinstance(declared, Mapping) and name in declared}


def scrubbed(value: Any, secrets: Iterable[str]) -> Any:
    """The value, any JSON, without any of the secrets, wherever in it they stand."""
    # The longest first: a secret may be the beginning of another.
    ordered = sorted((each for each in secrets if each), key=len, reverse=True)
    if not ordered:
        return value
    everywhere = _any_of([re.escape(each) for each in ordered if len(each) >= SHORTEST_KEY])
    in_texts = _any_of(
        [re.escape(each) if len(each) >= SHORTEST_KEY else rf"(?<!\w){re.escape(each)}(?!\w)" for each in ordered]
    )
    return _scrubbed(value, everywhere, in_texts)


def _any_of(patterns: list[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(patterns)) if patterns else None


def _scrubbed(value: Any, everywhere: re.Pattern[str] | None, in_texts: re.Pattern[str] | None) -> Any:
    if isinstance(value, str):
        return in_texts.sub(_MARK, value) if in_texts else value
    if isinstance(value, list):
        return [_scrubbed(each, everywhere, in_texts) for each in value]  # pyright: ignore[reportUnknownVariableType] any JSON
    if isinstance(value, dict):
        inner: dict[Any, Any] = value  # pyright: ignore[reportUnknownVariableType] any JSON
        return {
            _scrubbed(name, everywhere, everywhere): _scrubbed(each, everywhere, in_texts)
            for name, each in inner.items()
        }
    return value
