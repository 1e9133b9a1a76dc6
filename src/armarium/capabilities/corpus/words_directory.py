"""The directory of the words index: replaced as a whole, cleared of what was left half-done, read where it is fixed."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

from armarium.retrieval.search.lexical_index import LexicalIndex

WORDS_DIRECTORY = "words"

_NEW, _OLD = f"{WORDS_DIRECTORY}.new", f"{WORDS_DIRECTORY}.old"
_META = "meta.json"
_LOCKS = ".lock"


def is_made(state_dir: Path) -> bool:
    """Whether there are words to open."""
    return (state_dir / WORDS_DIRECTORY / _META).is_file()


def clear_leftovers(state_dir: Path) -> None:
    """Remove what a process left that ended while it replaced the words."""
    for name in (_NEW, _OLD):
        shutil.rmtree(state_dir / name, ignore_errors=True)


def remove(state_dir: Path) -> None:
    """Remove the words, or whatever stands in their place."""
    directory = state_dir / WORDS_DIRECTORY
    if directory.is_dir() and not directory.is_symlink():
        shutil.rmtree(directory, ignore_errors=True)
    else:
        directory.unlink(missing_ok=True)


def replaced(state_dir: Path, words: LexicalIndex, fill: Callable[[LexicalIndex], None]) -> LexicalIndex:
    """Words made anew, in the place of `words`, which can be searched until then and by those who still do."""
    clear_leftovers(state_dir)
    fresh = LexicalIndex.open(state_dir / _NEW)
    fill(fresh)
    fresh.commit()
    fresh.close()
    words.close()
    # Moved away first: a merge that the old one has under way must not find its directory again under this name.
    (state_dir / WORDS_DIRECTORY).rename(state_dir / _OLD)
    (state_dir / _NEW).rename(state_dir / WORDS_DIRECTORY)
    shutil.rmtree(state_dir / _OLD)
    return LexicalIndex.open(state_dir / WORDS_DIRECTORY)


def open_fixed(state_dir: Path) -> LexicalIndex:
    """The words for a process that may not write there. The library wants to, if only to lock it while it opens."""
    directory = state_dir / WORDS_DIRECTORY
    if os.access(directory, os.W_OK):
        return LexicalIndex.open(directory)
    stand_in = Path(tempfile.mkdtemp(prefix="words-"))
    try:
        for file in directory.iterdir():
            if not file.name.endswith(_LOCKS):
                (stand_in / file.name).symlink_to(file)
        words = LexicalIndex.open(stand_in)
    except BaseException:
        shutil.rmtree(stand_in, ignore_errors=True)
        raise
    weakref.finalize(words, shutil.rmtree, stand_in, ignore_errors=True)
    return words
