"""Directories for one user alone."""

from __future__ import annotations

from pathlib import Path

_OWNER_ONLY = 0o700


def make_private_directory(directory: Path) -> None:
    """Make a directory and those above it that are missing, each for its owner alone; one that is there stays as it is.

    `mkdir(parents=True, mode=…)` makes the directories above with whatever rights the umask leaves.
    """
    for each in reversed([directory, *directory.parents]):
        if not each.exists():
            each.mkdir(mode=_OWNER_ONLY, exist_ok=True)
