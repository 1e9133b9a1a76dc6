"""Maps failed reads and writes to the errors of the corpus: state unwritable, store corrupt, directory deleted."""

from __future__ import annotations

import errno
import os
import sqlite3
from typing import Literal

from armarium.capabilities.corpus.errors import CorpusError, IngestionFailed, RootInaccessible, StoreCorrupt
from armarium.foundation.concurrency.tasks import leaf_errors
from armarium.foundation.sqlite import Fault, fault_of
from armarium.retrieval.errors import DamagedIndex

UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
_FULL = {errno.ENOSPC, errno.EDQUOT}


def unwritable_error(reason: str) -> IngestionFailed:
    return IngestionFailed(
        f"the state cannot be written: {reason}", hint="free some space, or choose another --state-dir"
    )


def corrupt_error() -> StoreCorrupt:
    return StoreCorrupt("meta.sqlite cannot be read", hint="run: dir2mcp reindex")


def damaged_error(part: str) -> StoreCorrupt:
    return StoreCorrupt(f"{part} in meta.sqlite is damaged", hint="to repair it, run: dir2mcp up")


def from_sqlite(error: sqlite3.Error) -> CorpusError | None:
    """The error of the corpus for an SQLite error; None if the SQL itself is wrong."""
    match fault_of(error):
        case Fault.FULL:
            return unwritable_error("the disk is full")
        case Fault.REFUSED | Fault.WRITE_FAILED:
            return unwritable_error("the database file is not writable")
        case Fault.DAMAGED | Fault.READ_FAILED | Fault.NOT_TEXT:
            return corrupt_error()
        case Fault.BUSY | None:
            return None


def from_damaged_index(error: DamagedIndex) -> CorpusError:
    """The error for a lexical index that cannot be read or written. Only the library's message reveals a full disk."""
    text = str(error.private.get("error", ""))
    if any(f"os error {number}" in text or os.strerror(number) in text for number in _FULL):
        return unwritable_error("the disk is full")
    return StoreCorrupt(error.message, hint="run: dir2mcp reindex")


def indexing_error(error: BaseException, root_fd: int) -> CorpusError | None:
    """The first storage error that ended indexing; None if any of the errors is a bug."""
    reasons = [_reason(each) for each in leaf_errors(error)]
    if not reasons or any(reason is None for reason in reasons):
        return None
    # A deleted directory often contained the state, which then fails first.
    return deleted_root_error(root_fd) or reasons[0]


def damage_of(part: Literal["storage", "lexical index"], error: BaseException) -> StoreCorrupt | None:
    """The damage of `meta.sqlite` or of the lexical index; None if there is any other error."""
    leaves = list(leaf_errors(error))
    reasons = [_reason(leaf) for leaf in leaves if isinstance(leaf, DamagedIndex) == (part == "lexical index")]
    found = [reason for reason in reasons if isinstance(reason, StoreCorrupt)]
    return found[0] if found and len(found) == len(leaves) else None


def deleted_root_error(root_fd: int) -> RootInaccessible | None:
    """The error for a deleted directory; None if it exists."""
    if os.fstat(root_fd).st_nlink:
        return None
    return RootInaccessible("the directory was deleted", hint="name a directory that exists and that you may list")


def _reason(error: BaseException) -> CorpusError | None:
    match error:
        case CorpusError():
            return error
        case DamagedIndex():
            return from_damaged_index(error)
        case sqlite3.Error():
            return from_sqlite(error)
        case OSError() if error.errno in UNWRITABLE:
            return unwritable_error(error.strerror or "the operating system denied it")
        case FileNotFoundError():
            return unwritable_error("the state directory was deleted")
        case _:
            return None
