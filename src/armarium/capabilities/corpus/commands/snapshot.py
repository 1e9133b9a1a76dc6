"""The settings in effect as they may be written down: every value, where each key came from, and never a key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import yaml

from armarium.capabilities.corpus.commands.server_token import Access
from armarium.capabilities.corpus.commands.settings import plain_values
from armarium.capabilities.corpus.commands.settings_loader import Loaded
from armarium.command_line.output import without_credentials
from armarium.foundation.files.state_files import replace_file

SNAPSHOT_FILE = ".dir2mcp.yaml.snapshot"


def effective(loaded: Loaded) -> dict[str, Any]:
    """What a file of settings could say to the same effect."""
    values = plain_values(loaded.settings)
    for setting, secret in loaded.keys.found.items():
        *parents, last = setting.split(".")
        section = values
        for step in parents:
            section = section[step]
        section[last] = f"${{{secret.name}}}"
    return _without(values, [secret.value for secret in loaded.keys.found.values()])


def secret_sources(loaded: Loaded) -> dict[str, dict[str, str]]:
    """Where each key was found."""
    return {
        setting: {"name": secret.name, "source": secret.source, "place": secret.place}
        for setting, secret in loaded.keys.found.items()
    }


def as_yaml(values: dict[str, Any]) -> str:
    """The form of `.dir2mcp.yaml`."""
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)


def write_snapshot(loaded: Loaded, access: Access, token: str | None) -> None:
    """Leave what this start was configured with beside the index, for its owner alone."""
    sources = secret_sources(loaded)
    if access.source != "none":
        # The token we make ourselves is in a file, too.
        kind = "env" if access.source == "env" else "file"
        sources["security.auth"] = {"name": "token", "source": kind, "place": access.place}
    values = _without(effective(loaded), [token] if token else [])
    described = values | {"root": str(loaded.root), "state_dir": str(loaded.state_dir), "secret_sources": sources}
    replace_file(loaded.state_dir / SNAPSHOT_FILE, as_yaml(described).encode("utf-8", "backslashreplace"))


def _without(value: Any, secrets: Iterable[str], name: str = "") -> Any:
    """The value with no secret in any string of it, nor a password in any address."""
    if isinstance(value, dict):
        return {key: _without(each, secrets, key) for key, each in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_without(each, secrets) for each in cast(list[Any], value)]
    if not isinstance(value, str):
        return value
    for secret in secrets:
        value = value.replace(secret, "***")
    return without_credentials(value) if name.endswith(("url", "endpoint")) else value
