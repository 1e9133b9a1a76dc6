"""Decides whether a state directory, and the index in it, are this user's own.

An indexed directory may come from anywhere, with a state directory in it. Nothing in that is used unless this user's
Armarium wrote it: the index and its files are replaced, and links out of the directory are removed.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
from contextlib import closing, suppress
from pathlib import Path

from armarium.capabilities.corpus.errors import CorpusError, ForeignState, IndexNotReady, IngestionFailed, StoreCorrupt
from armarium.capabilities.corpus.index.state import LOCK_FILE, META_FILE, read_status, remove_indexes, remove_state
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.foundation.files.state_files import make_private_directory
from armarium.foundation.security.ownership import has_mark, mark_of, mark_token, predates_marks

OWNER_MARK = "written_by"
"""The setting with the mark of the user who wrote the index."""
TOKEN_FILE = "secret.token"  # noqa: S105 the name of a file, not a secret
_ELSEWHERE = "remove it, or choose another state directory with --state-dir"
_PRIVATE = 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

_log = logging.getLogger(__name__)


def prepare_directory(state_dir: Path, root: Path) -> None:
    """Create the state directory of an indexed directory, or make an existing one this user's own: private, without
    links, and with an index only if this user wrote it. Raises if it belongs to somebody else, or leads elsewhere."""
    try:
        if os.path.lexists(state_dir):
            _take(state_dir, root)
        else:
            make_private_directory(state_dir)
        (state_dir / LOCK_FILE).parent.mkdir(exist_ok=True, mode=_PRIVATE)
        # The index should not be committed together with the directory.
        if not (state_dir / ".gitignore").exists():
            (state_dir / ".gitignore").write_text("*\n")
    except OSError as error:
        raise StoreCorrupt(
            f"cannot write the state directory: {error.strerror}", hint="choose another one with --state-dir"
        ) from error


def _take(state_dir: Path, root: Path) -> None:
    found = _status(state_dir, root)
    if found.st_uid != os.geteuid():
        raise ForeignState(f"{state_dir} belongs to another user", hint=_ELSEWHERE)
    if not os.access(state_dir, os.W_OK | os.X_OK):
        return
    if found.st_mode & _OTHERS:
        os.chmod(state_dir, _PRIVATE)
        if os.stat(state_dir).st_mode & _OTHERS:
            raise ForeignState(f"{state_dir} cannot be made private", hint=_ELSEWHERE)
        _log.warning(
            "%s was accessible to other users (mode %04o); it is private now", state_dir, found.st_mode & 0o777
        )
    removed = _remove_foreign_entries(state_dir)
    if removed:
        _log.warning("removed from %s what this program does not make: %s", state_dir, ", ".join(sorted(removed)))
    if found.st_mode & _OTHERS_WRITE and (state_dir / META_FILE).exists():
        _log.warning("other users could change the index; everything is indexed again")
        remove_state(state_dir)
    elif _is_earlier_version(state_dir, root):
        _adopt(state_dir)


def _status(state_dir: Path, root: Path) -> os.stat_result:
    """The status of the state directory. In the indexed directory, which may come from anywhere, a link is refused."""
    found = os.lstat(state_dir) if state_dir.parent == root else os.stat(state_dir)
    if stat.S_ISLNK(found.st_mode):
        raise ForeignState(f"{state_dir} is a link", hint=_ELSEWHERE)
    if not stat.S_ISDIR(found.st_mode):
        raise ForeignState(f"{state_dir} is not a directory", hint=_ELSEWHERE)
    return found


def _remove_foreign_entries(state_dir: Path) -> list[str]:
    """Remove links, pipes, devices, and entries of other users. Returns their names."""
    removed: list[str] = []
    pending = [str(state_dir)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                is_directory = stat.S_ISDIR(found.st_mode)
                if found.st_uid == os.geteuid() and (is_directory or stat.S_ISREG(found.st_mode)):
                    pending += [entry.path] * is_directory
                    continue
                removed.append(os.path.relpath(entry.path, state_dir))
                shutil.rmtree(entry.path) if is_directory else os.unlink(entry.path)
    return removed


def _is_earlier_version(state_dir: Path, root: Path) -> bool:
    """Whether the index is one of this directory that an earlier version wrote, which had no marks."""
    try:
        recorded = read_status(state_dir)["root"]
    except (CorpusError, KeyError):
        return False
    return recorded == str(root) and predates_marks(state_dir / META_FILE)


def _adopt(state_dir: Path) -> None:
    """Mark an index of an earlier version, with its token. What is derived from it is rebuilt: the library that reads
    vectors is not safe against malicious files."""
    try:
        with closing(Storage(state_dir / META_FILE)) as storage:
            corpus_id = storage.notes.get("corpus_id")
            if storage.notes.get(OWNER_MARK) is not None or not corpus_id or storage.has_foreign_schema():
                return
            remove_indexes(state_dir)
            storage.notes.put(OWNER_MARK, mark_of("corpus", corpus_id))
    except CorpusError:
        # Whoever opens it next reports why, and repairs it.
        return
    mark_token(state_dir / TOKEN_FILE)


def require_own_storage(storage: Storage, *, state_dir: Path, root: Path, read_only: bool) -> None:
    """Raise `ForeignState` unless this user wrote the storage, or it is new."""
    corpus_id = storage.notes.get("corpus_id")
    if corpus_id is None and not any(storage.counts()) and not storage.has_foreign_schema():
        return
    mark = storage.notes.get(OWNER_MARK)
    if has_mark("corpus", corpus_id, mark):
        return
    # One of an earlier version that was only read so far, and has no mark yet.
    may_be_earlier = mark is None and read_only and _is_earlier_version(state_dir, root)
    if not may_be_earlier or storage.has_foreign_schema():
        raise ForeignState("the index in the state directory was not written by this user", hint="run: dir2mcp up")


def require_own_index(state_dir: Path, root: Path) -> None:
    """Raise unless there is an index of this user. Changes nothing."""
    file = state_dir / META_FILE
    if not os.path.lexists(state_dir):
        raise IndexNotReady("there is no index here", hint="run: dir2mcp up")
    if _status(state_dir, root).st_uid != os.geteuid():
        raise ForeignState(f"{state_dir} belongs to another user", hint=_ELSEWHERE)
    if file.is_symlink():
        raise ForeignState(f"{file} is a link", hint="run: dir2mcp up")
    if not file.is_file() or not file.stat().st_size:
        raise IndexNotReady("there is no index", hint="run: dir2mcp up")
    # After a crash, SQLite may need to write before it can read.
    with suppress(IngestionFailed), closing(Storage(file, read_only=True)) as storage:
        storage.counts()
        require_own_storage(storage, state_dir=state_dir, root=root, read_only=True)
