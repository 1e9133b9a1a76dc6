"""Tells what a failed read or write means: the state cannot be written, is corrupt, or the directory is gone."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator

from armarium.capabilities.corpus.errors import CorpusError, RootInaccessible, StateUnwritable, StoreCorrupt
from armarium.foundation.sqlite import Fault, fault_of
from armarium.retrieval.errors import DamagedIndex

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
_FULL = {errno.ENOSPC, errno.EDQUOT}


def unwritable(reason: str) -> StateUnwritable:
    """That nothing can be kept."""
    return StateUnwritable(f"the state cannot be written: {reason}", hint="make room, or choose another --state-dir")


def corrupt() -> StoreCorrupt:
    """That what was kept cannot be used."""
    return StoreCorrupt("meta.sqlite cannot be read", hint="run: dir2mcp reindex")


def damaged(part: str) -> StoreCorrupt:
    """That something in `meta.sqlite` is not what was written there."""
    return StoreCorrupt(f"{part} in meta.sqlite is damaged", hint="it is mended by: dir2mcp up")


def of_sqlite(error: sqlite3.Error) -> CorpusError | None:
    """The corpus's own error for one of SQLite; None for a mistake in our own use of it."""
    match fault_of(error):
        case Fault.FULL:
            return unwritable("the disk is full")
        case Fault.REFUSED | Fault.WRITE_FAILED:
            return unwritable("the database file refuses")
        case Fault.DAMAGED | Fault.READ_FAILED | Fault.NOT_TEXT:
            return corrupt()
        case Fault.BUSY | None:
            return None


def of_torn(error: DamagedIndex) -> CorpusError:
    """What is wrong with words that could not be read or written: the library tells a full disk only in its text."""
    told = str(error.private.get("error", ""))
    if any(f"os error {number}" in told or os.strerror(number) in told for number in _FULL):
        return unwritable("the disk is full")
    return StoreCorrupt(error.message, hint="run: dir2mcp reindex")


def what_ended_it(error: BaseException, root_fd: int) -> CorpusError | None:
    """Why indexing cannot go on, where that is the world's doing and not ours; of several reasons the first."""
    reasons = [_reason(each) for each in _leaves(error)]
    if not reasons or any(reason is None for reason in reasons):
        return None
    # A deleted directory often takes its state along: then that is what happened, whatever failed first.
    return root_trouble(root_fd) or reasons[0]


def storage_damage(error: BaseException) -> StoreCorrupt | None:
    """The damage of `meta.sqlite` that is all that is wrong, if it is."""
    leaves = list(_leaves(error))
    reasons = [None if isinstance(leaf, DamagedIndex) else _reason(leaf) for leaf in leaves]
    found = [reason for reason in reasons if isinstance(reason, StoreCorrupt)]
    return found[0] if found and len(found) == len(leaves) else None


def words_damage(error: BaseException) -> StoreCorrupt | None:
    """The damage of the words index that is all that is wrong, if it is."""
    leaves = list(_leaves(error))
    reasons = [of_torn(leaf) for leaf in leaves if isinstance(leaf, DamagedIndex)]
    found = [reason for reason in reasons if isinstance(reason, StoreCorrupt)]
    return found[0] if found and len(found) == len(leaves) else None


def root_trouble(root_fd: int) -> RootInaccessible | None:
    """That the directory was deleted, if it was."""
    if os.fstat(root_fd).st_nlink:
        return None
    return RootInaccessible("the directory was deleted", hint="name a directory that exists and that you may list")


def _reason(error: BaseException) -> CorpusError | None:
    match error:
        case CorpusError():
            return error
        case DamagedIndex():
            return of_torn(error)
        case sqlite3.Error():
            return of_sqlite(error)
        case OSError() if error.errno in _UNWRITABLE:
            return unwritable(error.strerror or "the operating system refuses")
        case FileNotFoundError():
            return unwritable("the state directory is gone")
        case _:
            return None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] of anything
            yield from _leaves(each)  # pyright: ignore[reportUnknownArgumentType] of anything
    else:
        yield error
