"""Generates the findings of a project for all contenders, and installs the peer."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PEER = "filigree==3.4.0"
SOURCES = ("ruff", "bandit", "semgrep")
SEVERITIES = ("critical", "high", "medium", "low", "info")
SUFFIXES = ("py", "ts", "go", "rs", "java", "md")
_WEIGHTS = (1, 4, 10, 10, 5)
_INSTALL_DEADLINE_S = 600


class NotInstalled(Exception):
    """The peer could not be installed."""


def path_of(number: int) -> str:
    """The path of a file in nested directories."""
    return f"src/area{number % 23}/part{number % 211}/module_{number}.{SUFFIXES[number % len(SUFFIXES)]}"


def findings(files: int, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Findings in all files, in the format of ours and the peer's. Every file has at least one."""
    chance = random.Random(seed)
    for number in range(count):
        file = number if number < files else chance.randrange(files)
        yield {
            "path": path_of(file),
            "rule_id": f"R{chance.randrange(300):03}",
            "message": f"what is written here is not what rule {chance.randrange(300)} asks for",
            "severity": chance.choices(SEVERITIES, _WEIGHTS)[0],
            # No two in one place: each is a finding of its own.
            "line_start": number + 1,
            "line_end": number + 1,
        }


def by_source(files: int, count: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    """The same findings, distributed over three scanners."""
    by_scanner: dict[str, list[dict[str, Any]]] = {source: [] for source in SOURCES}
    for number, finding in enumerate(findings(files, count, seed)):
        by_scanner[SOURCES[number % len(SOURCES)]].append(finding)
    return by_scanner


def installed_peer(home: Path) -> str:
    """The interpreter of an environment with the peer, installed for this run from the configured index."""
    python = str(home / "bin" / "python")
    try:
        for command in (
            [sys.executable, "-m", "venv", str(home)],
            [python, "-m", "pip", "install", "--quiet", PEER],
        ):
            subprocess.run(command, check=True, env=os.environ, capture_output=True, timeout=_INSTALL_DEADLINE_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotInstalled(f"could not be installed ({type(error).__name__})") from error
    return python
