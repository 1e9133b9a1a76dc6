"""The effective settings and the sources of the keys, without the keys themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import yaml

from armarium.capabilities.corpus.commands.connection import TokenSource
from armarium.capabilities.corpus.commands.provider_keys import value_at
from armarium.capabilities.corpus.commands.settings import plain_values
from armarium.capabilities.corpus.commands.settings_loader import LoadedSettings
from armarium.command_line.output import without_credentials
from armarium.foundation.files.state_files import replace_file

SNAPSHOT_FILE = ".dir2mcp.yaml.snapshot"


def effective_values(loaded: LoadedSettings) -> dict[str, Any]:
    """The effective settings as values for a settings file, with references instead of keys."""
    values = plain_values(loaded.settings)
    for setting, secret in loaded.keys.found.items():
        *parents, last = setting.split(".")
        value_at(values, parents)[last] = f"${{{secret.name}}}"
    return _redact(values, [secret.value for secret in loaded.keys.found.values()])


def secret_sources(loaded: LoadedSettings) -> dict[str, dict[str, str]]:
    """The name, source and place of each key that was found."""
    found = loaded.keys.found.items()
    return {setting: {"name": key.name, "source": key.source, "place": key.place} for setting, key in found}


def as_yaml(values: dict[str, Any]) -> str:
    """The values in the format of `.dir2mcp.yaml`."""
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)


def write_snapshot(loaded: LoadedSettings, token_source: TokenSource) -> None:
    """Store the effective settings in the state directory, readable only by the owner."""
    sources = secret_sources(loaded)
    if token_source.kind != "none":
        # A generated token is in a file as well.
        kind = token_source.kind if token_source.kind in ("env", "keychain") else "file"
        sources["security.auth"] = {"name": "token", "source": kind, "place": token_source.place}
    values = _redact(effective_values(loaded), [token_source.token] if token_source.token else [])
    described = values | {"root": str(loaded.root), "state_dir": str(loaded.state_dir), "secret_sources": sources}
    replace_file(loaded.state_dir / SNAPSHOT_FILE, as_yaml(described).encode("utf-8", "backslashreplace"))


def _redact(value: Any, secrets: Iterable[str], name: str = "") -> Any:
    """The value without secrets in its strings, and without passwords in its URLs."""
    if isinstance(value, dict):
        return {key: _redact(each, secrets, key) for key, each in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_redact(each, secrets) for each in cast(list[Any], value)]
    if not isinstance(value, str):
        return value
    for secret in secrets:
        value = value.replace(secret, "***")
    return without_credentials(value) if name.endswith(("url", "endpoint")) else value
