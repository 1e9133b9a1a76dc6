"""Where the command line looks for a file of settings."""

from __future__ import annotations

from pathlib import Path

CONFIG_FILE = Path("armarium.yaml")


def given_file(config: Path | None) -> Path | None:
    """The file named, or armarium.yaml where there is one."""
    return config or (CONFIG_FILE if CONFIG_FILE.exists() else None)
