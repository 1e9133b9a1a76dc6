"""The state directory: its files, the lock for writing, and the summary for other programs."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

import orjson

from armarium.capabilities.corpus.errors import IndexLocked, IndexNotReady, RootInaccessible, StoreCorrupt
from armarium.capabilities.corpus.files.exclusion import STATE_PATHS
from armarium.capabilities.corpus.index.lexical import clear_leftovers
from armarium.capabilities.corpus.index.lexical import remove as remove_lexical
from armarium.capabilities.corpus.index.vectors import KINDS, vector_file
from armarium.capabilities.corpus.settings import STATE_DIRECTORY
from armarium.capabilities.corpus.storage.errors import unwritable_error
from armarium.capabilities.corpus.storage.storage import remove_damaged
from armarium.foundation.files.ignore import IgnoreRules
from armarium.foundation.files.own_files import lines_hiding
from armarium.foundation.files.state_files import make_way, open_regular, replace_file

META_FILE = "meta.sqlite"
SUMMARY_FILE = "corpus.json"
LOCK_FILE = "locks/index.lock"

_WAIT_S = 0.5


def root_directory(root: str) -> Path:
    """The directory to index. Raises if it cannot be listed."""
    path = Path(os.path.abspath(os.path.expanduser(root)))
    try:
        with os.scandir(path) as entries:
            next(entries, None)
    except OSError as error:
        raise RootInaccessible(
            f"cannot read {path}: {error.strerror}", hint="name a directory that exists and can be listed"
        ) from error
    return path


def state_paths(root: Path, state_dir: Path, private_paths: Iterable[Path] = ()) -> tuple[str, ...]:
    """Patterns for the server's own files (state, keys, `private_paths`), which are neither indexed nor shown."""
    everywhere = (*STATE_PATHS, f"{STATE_DIRECTORY}.yaml")
    hidden_already = IgnoreRules.from_lines(everywhere)
    here = lines_hiding([state_dir, *private_paths], str(root))
    return (*everywhere, *(line for line in dict.fromkeys(here) if not hidden_already.hides(line[1:], True)))


def may_write(state_dir: Path) -> bool:
    """Whether the state can be written, according to permissions and file system."""
    places = (state_dir, state_dir / META_FILE, state_dir / LOCK_FILE)
    return all(os.access(place, os.W_OK) for place in places if place.exists())


class IndexLock(AbstractContextManager["IndexLock"]):
    """The lock for writing the index. One process holds it at a time; it is released when the process ends."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / LOCK_FILE
        self._file: IO[bytes] | None = None

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def held(self) -> bool:
        return self._file is not None

    @property
    def is_in_place(self) -> bool:
        """Whether the lock that this process holds is still in force: not if its file was removed."""
        try:
            return self._file is not None and os.path.samestat(os.fstat(self._file.fileno()), os.stat(self._path))
        except OSError:
            return False

    def try_acquire(self) -> bool:
        """Acquire the lock unless another process holds it."""
        try:
            # Neither follows a link nor waits for a reader of a pipe.
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.fdopen(os.open(self._path, flags, 0o600), "ab")
        except OSError as error:
            raise unwritable_error(error.strerror or "the lock cannot be taken") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return False
        self._file = file
        return True

    def acquire(self) -> None:
        end = time.monotonic() + _WAIT_S
        while not self.try_acquire():
            # Another process may hold it for a moment, only to check whether there is a server.
            if time.monotonic() < end:
                time.sleep(_WAIT_S / 20)
                continue
            raise IndexLocked("another process is indexing this directory", hint="use that server, or stop it first")


def is_being_indexed(state_dir: Path) -> bool:
    """Whether another process holds the lock."""
    try:
        with open_regular(state_dir / LOCK_FILE) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError as error:
        # Without a number, it is not a file.
        return error.errno is not None
    return False


def remove_indexes(state_dir: Path) -> None:
    """Remove everything that is derived from `meta.sqlite`."""
    clear_leftovers(state_dir)
    remove_lexical(state_dir)
    for kind in KINDS:
        make_way(state_dir / vector_file(kind))
        (state_dir / vector_file(kind)).unlink(missing_ok=True)


def remove_state(state_dir: Path) -> None:
    """Remove the index and the storage. Token and settings remain."""
    remove_indexes(state_dir)
    remove_damaged(state_dir / META_FILE)
    for suffix in ("", "-wal", "-shm"):
        (state_dir / f"{META_FILE}{suffix}").unlink(missing_ok=True)


def write_summary(state_dir: Path, summary: dict[str, Any]) -> None:
    make_way(state_dir / SUMMARY_FILE)
    replace_file(state_dir / SUMMARY_FILE, orjson.dumps(summary, option=orjson.OPT_INDENT_2), mode=0o644)


def read_status(state_dir: Path) -> dict[str, Any]:
    """The content of `corpus.json`, and whether indexing is still running."""
    try:
        with open_regular(state_dir / SUMMARY_FILE) as file:
            summary: dict[str, Any] = orjson.loads(file.read())
        serving = is_being_indexed(state_dir)
        # A process that was killed may have left `running` set.
        summary["indexing"]["running"] = bool(summary["indexing"]["running"]) and serving
    except FileNotFoundError as error:
        raise IndexNotReady("there is no index here", hint="run: dir2mcp up") from error
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise StoreCorrupt("corpus.json cannot be read", hint="run: dir2mcp reindex") from error
    return summary | {"serving": serving}
