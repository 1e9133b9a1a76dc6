"""`armarium config print`: the settings in effect, with defaults and without secrets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from armarium.command_line.options import settings_file
from armarium.command_line.output import Misuse, without_credentials
from armarium.foundation.settings import CoreSettings
from armarium.foundation.settings_loader import load_settings
from armarium.settings import Settings
from armarium.surfaces.cli.start import directory_settings


def effective_settings(config: Path | None, directory: Path | None, *, write: bool) -> dict[str, Any]:
    """The settings of a file, or of `armarium up DIR`, as plain values for a settings file."""
    if directory is None:
        if write:
            raise Misuse("--write goes with --dir", hint="a file says `read_only` for each root")
        return _plain_values(load_settings(Settings, settings_file(config), environ=os.environ))
    if config is not None:
        raise Misuse("--dir and --config exclude each other", hint="name the directory in the file's sandbox.roots")
    return _plain_values(directory_settings(directory, write=write))


def _plain_values(effective: CoreSettings) -> dict[str, Any]:
    values = effective.model_dump(mode="json") | {"state_dir": str(effective.state_path())}
    return _without_credentials(values)


def _without_credentials(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_credentials(inner) for name, inner in value.items()}  # pyright: ignore[reportUnknownVariableType] any JSON
    if isinstance(value, list):
        return [_without_credentials(inner) for inner in value]  # pyright: ignore[reportUnknownVariableType] any JSON
    return without_credentials(value) if isinstance(value, str) else value


def as_yaml(values: dict[str, Any]) -> str:
    """The values in the format of armarium.yaml."""
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120).rstrip()
