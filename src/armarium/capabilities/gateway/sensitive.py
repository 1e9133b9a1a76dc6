"""Sensitive parameters: which there are, to whom they are given, and how they are kept out of everything else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from armarium.foundation.schema import JsonSchema

SENSITIVE: Final = ("user_token", "api_key", "bearer", "oauth_token", "capability_token")
"""Parameters that carry a secret of the caller's. They are passed on to a server that asks for them, and else nowhere:
not to a log, the audit trail, an error or a file."""
LONGEST_SECRET: Final = 16_384

_MARK = "[removed]"
_SHORTEST_SECRET = 4
"""Shorter ones are no secrets; replacing each would make nonsense of what a server says."""


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
    hidden = sorted((each for each in secrets if len(each) >= _SHORTEST_SECRET), key=len, reverse=True)
    return _scrubbed(value, hidden) if hidden else value


def _scrubbed(value: Any, hidden: list[str]) -> Any:
    if isinstance(value, str):
        for secret in hidden:
            value = value.replace(secret, _MARK)
        return value
    if isinstance(value, list):
        return [_scrubbed(each, hidden) for each in value]  # pyright: ignore[reportUnknownVariableType] any JSON
    if isinstance(value, dict):
        inner: dict[Any, Any] = value  # pyright: ignore[reportUnknownVariableType] any JSON
        return {_scrubbed(name, hidden): _scrubbed(each, hidden) for name, each in inner.items()}
    return value
