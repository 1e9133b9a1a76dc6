"""Options that commands of several modules have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="YAML file of settings. [default: armarium.yaml, if there is one]"),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"] | None, typer.Option(help="Lowest level written to standard error.")
]
