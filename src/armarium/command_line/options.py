"""Options that several commands have, and the settings file they default to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

CONFIG_FILE = Path("armarium.yaml")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="YAML file of settings. [default: armarium.yaml, if there is one]"),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"] | None, typer.Option(help="Lowest level written to standard error.")
]


def settings_file(config: Path | None) -> Path | None:
    """The file named by `--config`, or `armarium.yaml` if it exists."""
    if config is not None or not os.path.lexists(CONFIG_FILE):
        return config
    from armarium.command_line.trust import require_regular

    require_regular(CONFIG_FILE)
    return CONFIG_FILE
