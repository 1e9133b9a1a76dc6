"""Creates directory trees for tests, and takes snapshots of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

Picture = dict[str, tuple[str, int, str]]
"""Maps each path to (kind, mode, content), to detect every change."""


def make_tree(directory: Path, files: Mapping[str, str | bytes | None]) -> None:
    """Create files with their content; None creates a directory."""
    for name, content in files.items():
        path = directory / name
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def empty(directory: Path) -> None:
    """Remove everything in the directory, but not the directory itself."""
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def picture(directory: Path) -> Picture:
    """A snapshot of everything below the directory. Links are read, not followed."""
    found: Picture = {}
    for parent, directories, files in os.walk(os.fsencode(directory)):
        for name in sorted(directories + files):
            path = os.path.join(parent, name)
            shown = os.fsdecode(os.path.relpath(path, os.fsencode(directory)))
            # A server that runs renames its temporary files.
            with suppress(FileNotFoundError):
                status = os.lstat(path)
                found[shown] = (stat.filemode(status.st_mode)[0], stat.S_IMODE(status.st_mode), _content(path, status))
    return found


def _content(path: bytes, status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return os.fsdecode(os.readlink(path))
    if stat.S_ISREG(status.st_mode):
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    return ""
