"""The directory of the lexical index on disk: opening, replacing and removing it."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

from armarium.retrieval.lexical import WordIndex

LEXICAL_DIRECTORY = "words"

_NEW, _OLD = f"{LEXICAL_DIRECTORY}.new", f"{LEXICAL_DIRECTORY}.old"
_META = "meta.json"
_LOCKS = ".lock"


def is_made(state_dir: Path) -> bool:
    """Whether there is a lexical index to open."""
    return (state_dir / LEXICAL_DIRECTORY / _META).is_file()


def clear_leftovers(state_dir: Path) -> None:
    """Remove the leftovers of a process that ended while it replaced the directory."""
    for name in (_NEW, _OLD):
        shutil.rmtree(state_dir / name, ignore_errors=True)


def remove(state_dir: Path) -> None:
    """Remove the directory, or any other file of its name."""
    directory = state_dir / LEXICAL_DIRECTORY
    if directory.is_dir() and not directory.is_symlink():
        shutil.rmtree(directory, ignore_errors=True)
    else:
        directory.unlink(missing_ok=True)


def replaced(state_dir: Path, old: WordIndex, fill: Callable[[WordIndex], None]) -> WordIndex:
    """A new lexical index in place of the old one, which callers that hold it can still search."""
    clear_leftovers(state_dir)
    fresh = WordIndex.open(state_dir / _NEW)
    fill(fresh)
    fresh.commit()
    fresh.close()
    old.close()
    # Renamed first: a merge that is running in the old index must not find its directory under this name.
    (state_dir / LEXICAL_DIRECTORY).rename(state_dir / _OLD)
    (state_dir / _NEW).rename(state_dir / LEXICAL_DIRECTORY)
    shutil.rmtree(state_dir / _OLD)
    return WordIndex.open(state_dir / LEXICAL_DIRECTORY)


def open_fixed(state_dir: Path) -> WordIndex:
    """Open the index in a process that may not write to its directory. The library needs to create a lock file
    there."""
    directory = state_dir / LEXICAL_DIRECTORY
    if os.access(directory, os.W_OK):
        return WordIndex.open(directory)
    stand_in = Path(tempfile.mkdtemp(prefix="lexical-"))
    try:
        for file in directory.iterdir():
            if not file.name.endswith(_LOCKS):
                (stand_in / file.name).symlink_to(file)
        lexical = WordIndex.open(stand_in)
    except BaseException:
        shutil.rmtree(stand_in, ignore_errors=True)
        raise
    weakref.finalize(lexical, shutil.rmtree, stand_in, ignore_errors=True)
    return lexical
