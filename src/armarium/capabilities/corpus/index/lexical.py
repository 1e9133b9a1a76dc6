"""The lexical index of a corpus on disk: opened, brought up to date with the storage, committed, replaced."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from armarium.capabilities.corpus.errors import IndexNotReady
from armarium.capabilities.corpus.health import Health
from armarium.capabilities.corpus.index.seals import (
    SEAL_PAUSES_S,
    LexicalSealer,
    has_lexical_seal,
    lexical_files_match,
)
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.retrieval.chunks import IndexKind
from armarium.retrieval.errors import DamagedIndex
from armarium.retrieval.search.lexical_index import LexicalChunk, LexicalIndex

LEXICAL_DIRECTORY = "words"

_NEW, _OLD = f"{LEXICAL_DIRECTORY}.new", f"{LEXICAL_DIRECTORY}.old"
_META = "meta.json"
_LOCKS = ".lock"
_UP_TO = "words_up_to"
"""The note that records the last committed chunk."""
_CHUNKS_AT_ONCE = 2000
_PATH_SEPARATORS = re.compile(r"[/\\._\-!]+")


class StoredLexicalIndex:
    """The lexical index with its directory and checksums."""

    def __init__(self, state_dir: Path, storage: Storage, health: Health, *, writing: bool) -> None:
        self._state_dir = state_dir
        self._storage = storage
        self._health = health
        self._uncommitted: int | None = None
        self.index = self._open() if writing else self._open_followed()
        """The current index. `rebuild` replaces it."""
        self._sealer = LexicalSealer(storage, state_dir / LEXICAL_DIRECTORY) if writing else None

    def _open(self) -> LexicalIndex:
        directory = self._state_dir / LEXICAL_DIRECTORY
        clear_leftovers(self._state_dir)
        if lexical_files_match(self._storage, directory):
            try:
                return LexicalIndex.open(directory)
            except DamagedIndex as error:
                self._warn(f"{error.message}; it is rebuilt")
        elif _exists(self._state_dir) or has_lexical_seal(self._storage):
            self._warn("the lexical index does not belong to meta.sqlite; it is rebuilt")
        remove(self._state_dir)
        self._storage.notes.put(_UP_TO, "0")
        return LexicalIndex.open(directory)

    def _open_followed(self) -> LexicalIndex:
        """Open the index that another process writes."""
        for pause_s in SEAL_PAUSES_S:
            try:
                if not self._storage.checked and _exists(self._state_dir):
                    self._warn("the lexical index was built by an older version, without checksums")
                    return _open_read_only(self._state_dir)
                if lexical_files_match(self._storage, self._state_dir / LEXICAL_DIRECTORY):
                    return _open_read_only(self._state_dir)
            except DamagedIndex as error:
                raise _being_built() from error
            # The leading process may have committed a moment ago, and not recorded the checksums yet.
            time.sleep(pause_s)
        if has_lexical_seal(self._storage):
            self._warn("the lexical index does not belong to meta.sqlite")
        raise _being_built()

    def _warn(self, message: str) -> None:
        self._health.warn("damaged lexical index", message)

    def catch_up(self) -> None:
        """Add the chunks that were stored but not committed when the last process ended."""
        if len(self.index) == 0:
            self._seal(0)
        for chunks in self._stored_after(int(self._storage.notes.get(_UP_TO) or 0)):
            # Some of them may have been committed before the process ended.
            self.index.remove(chunk.chunk_id for chunk in chunks)
            self.add(chunks)
            self.commit()

    def _stored_after(self, chunk_id: int) -> Iterator[list[LexicalChunk]]:
        while rows := self._storage.chunks.after(chunk_id, _CHUNKS_AT_ONCE):
            chunk_id = rows[-1][0]
            yield [lexical_chunk(*row) for row in rows]

    def add(self, chunks: Sequence[LexicalChunk]) -> None:
        """Add chunks in id order. They become searchable with the next commit."""
        self.index.add(chunks)
        self._uncommitted = chunks[-1].chunk_id

    def commit(self) -> None:
        """Make the chunks added so far searchable, and record how far the index is."""
        if self._uncommitted is None:
            return
        up_to, self._uncommitted = self._uncommitted, None
        self.index.commit()
        self._seal(up_to)

    def _seal(self, up_to: int) -> None:
        if self._sealer is not None:
            self._sealer.seal(**{_UP_TO: str(up_to)})

    def rebuild(self) -> None:
        """Replace the index by one without deleted chunks, whose terms the library may keep forever. Callers that hold
        the old one can still search it."""
        directory, new, old = (self._state_dir / name for name in (LEXICAL_DIRECTORY, _NEW, _OLD))
        clear_leftovers(self._state_dir)
        fresh = LexicalIndex.open(new)
        up_to = 0
        for chunks in self._stored_after(0):
            fresh.add(chunks)
            up_to = chunks[-1].chunk_id
        fresh.commit()
        fresh.close()
        self.index.close()
        # Renamed first: a merge that is running in the old index must not find its directory under this name.
        directory.rename(old)
        new.rename(directory)
        shutil.rmtree(old)
        self.index = LexicalIndex.open(directory)
        self._uncommitted = None
        self._seal(up_to)

    def close(self, *, sealing: bool = True) -> None:
        """Close the index and, if `sealing`, record its final checksums."""
        self.index.close()
        if self._sealer is not None:
            self._sealer.close(sealing=sealing)


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


def _exists(state_dir: Path) -> bool:
    return (state_dir / LEXICAL_DIRECTORY / _META).is_file()


def _open_read_only(state_dir: Path) -> LexicalIndex:
    """Open the index in a process that may not write to its directory. The library creates a lock file there."""
    directory = state_dir / LEXICAL_DIRECTORY
    if os.access(directory, os.W_OK):
        return LexicalIndex.open(directory)
    with ExitStack() as cleanup:
        stand_in = tempfile.TemporaryDirectory(prefix="lexical-", ignore_cleanup_errors=True)
        copy = Path(cleanup.enter_context(stand_in))
        for file in directory.iterdir():
            if not file.name.endswith(_LOCKS):
                (copy / file.name).symlink_to(file)
        lexical = LexicalIndex.open(copy)
        weakref.finalize(lexical, cleanup.pop_all().close)
    return lexical


def lexical_chunk(
    chunk_id: int, doc_id: int, kind: IndexKind, rel_path: str, title: str | None, context: str, text: str
) -> LexicalChunk:
    """A chunk as the lexical index contains it: the words of its path can be searched like its title."""
    path_words = _PATH_SEPARATORS.sub(" ", rel_path)
    return LexicalChunk(chunk_id, doc_id, kind, f"{path_words} {title}" if title else path_words, context, text)


def _being_built() -> IndexNotReady:
    return IndexNotReady("the index is being built", hint="try again in a moment")
