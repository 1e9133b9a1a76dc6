"""The state directory: who may write to it, what is in it, and the summary that other programs read."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, Self

import orjson

from armarium.capabilities.corpus.errors import IndexLocked, IndexNotReady, RootInaccessible, StoreCorrupt
from armarium.capabilities.corpus.files.exclusion import STATE_PATHS
from armarium.capabilities.corpus.index import KINDS, vector_file
from armarium.capabilities.corpus.settings import STATE_DIRECTORY
from armarium.capabilities.corpus.storage.storage import remove_damaged
from armarium.capabilities.corpus.troubles import unwritable
from armarium.capabilities.corpus.words_directory import clear_leftovers
from armarium.capabilities.corpus.words_directory import remove as remove_words
from armarium.foundation.files.ignore import IgnoreRules, lines_hiding
from armarium.foundation.files.state_files import make_way, open_regular, replace_file

META_FILE = "meta.sqlite"
SUMMARY_FILE = "corpus.json"
LOCK_FILE = "locks/index.lock"

_PRIVATE = 0o700
_PATIENCE_S = 0.5


def root_directory(root: str) -> Path:
    """The directory to index; raises when it cannot be listed."""
    path = Path(os.path.abspath(os.path.expanduser(root)))
    try:
        with os.scandir(path) as entries:
            next(entries, None)
    except OSError as error:
        raise RootInaccessible(
            f"cannot read {path}: {error.strerror}", hint="name a directory that exists and that you may list"
        ) from error
    return path


def state_directory(root: Path, state_dir: str | None) -> Path:
    """Where the state of a directory is kept."""
    return Path(os.path.abspath(os.path.expanduser(state_dir))) if state_dir else root / STATE_DIRECTORY


def state_paths(root: Path, state_dir: Path, private_paths: Iterable[Path] = ()) -> tuple[str, ...]:
    """Patterns of what holds the state or a key, wherever in the root it is: neither indexed nor shown. With what the
    whole server keeps for itself, where the corpus is only a part of it."""
    everywhere = (*STATE_PATHS, f"{STATE_DIRECTORY}.yaml")
    hidden_already = IgnoreRules.from_lines(everywhere)
    here = lines_hiding([state_dir, *private_paths], str(root))
    return (*everywhere, *(line for line in dict.fromkeys(here) if not hidden_already.hides(line[1:], True)))


def prepare_directory(state_dir: Path) -> None:
    """Make the directory, for this user alone."""
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
        (state_dir / LOCK_FILE).parent.mkdir(exist_ok=True, mode=_PRIVATE)
        # Whoever commits the directory does not mean its index.
        if not (state_dir / ".gitignore").exists():
            (state_dir / ".gitignore").write_text("*\n")
    except OSError as error:
        raise StoreCorrupt(
            f"cannot write the state directory: {error.strerror}", hint="choose another one with --state-dir"
        ) from error


def may_write(state_dir: Path) -> bool:
    """Whether the state can be changed, as far as permissions and the file system tell."""
    places = (state_dir, state_dir / META_FILE, state_dir / LOCK_FILE)
    return all(os.access(place, os.W_OK) for place in places if place.exists())


class IndexingLock:
    """The right to write the index, which one process at a time has. It ends with the process at the latest."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / LOCK_FILE
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Let another process have it."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def held(self) -> bool:
        """Whether this process has the right."""
        return self._file is not None

    @property
    def is_in_place(self) -> bool:
        """Whether the lock that this process has is the one that others look at: not after its file was removed."""
        try:
            return self._file is not None and os.path.samestat(os.fstat(self._file.fileno()), os.stat(self._path))
        except OSError:
            return False

    def take(self) -> bool:
        """Have it from now on, unless another process has it."""
        try:
            file = open(self._path, "a")  # noqa: SIM115 open for as long as the lock is held
        except OSError as error:
            raise unwritable(error.strerror or "the lock cannot be taken") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return False
        self._file = file
        return True

    def insist(self) -> None:
        """Have it, or raise."""
        end = time.monotonic() + _PATIENCE_S
        while not self.take():
            # Somebody may only be looking whether there is a server, which is over in a moment.
            if time.monotonic() < end:
                time.sleep(_PATIENCE_S / 20)
                continue
            raise IndexLocked("another process is indexing this directory", hint="use that server, or stop it first")


def is_being_indexed(state_dir: Path) -> bool:
    """Whether a process holds the lock."""
    try:
        with open(state_dir / LOCK_FILE) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def forget_indexes(state_dir: Path) -> None:
    """Remove what is made from `meta.sqlite`."""
    clear_leftovers(state_dir)
    remove_words(state_dir)
    for kind in KINDS:
        make_way(state_dir / vector_file(kind))
        (state_dir / vector_file(kind)).unlink(missing_ok=True)


def forget_everything(state_dir: Path) -> None:
    """Remove the index and what it was made from; token and settings stay."""
    forget_indexes(state_dir)
    remove_damaged(state_dir / META_FILE)
    for suffix in ("", "-wal", "-shm"):
        (state_dir / f"{META_FILE}{suffix}").unlink(missing_ok=True)


def write_summary(state_dir: Path, summary: dict[str, Any]) -> None:
    """Replace `corpus.json`."""
    make_way(state_dir / SUMMARY_FILE)
    replace_file(state_dir / SUMMARY_FILE, orjson.dumps(summary, option=orjson.OPT_INDENT_2), mode=0o644)


def read_status(state_dir: Path) -> dict[str, Any]:
    """`corpus.json`, and whether the numbers in it are still moving."""
    try:
        with open_regular(state_dir / SUMMARY_FILE) as file:
            summary: dict[str, Any] = orjson.loads(file.read())
        serving = is_being_indexed(state_dir)
        # What is not being indexed was left by a process that may have ended without a chance to say so.
        summary["indexing"]["running"] = bool(summary["indexing"]["running"]) and serving
    except FileNotFoundError as error:
        raise IndexNotReady("there is no index here", hint="run: dir2mcp up") from error
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise StoreCorrupt("corpus.json cannot be read", hint="run: dir2mcp reindex") from error
    return summary | {"serving": serving}
