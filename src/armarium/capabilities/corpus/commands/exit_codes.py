"""How a command ends: exit codes with the meaning the contract gives them, and what is said about an error."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING

from armarium.capabilities.corpus.errors import IndexVersionMismatch, StoreCorrupt
from armarium.foundation.errors import ArmariumError

if TYPE_CHECKING:
    from armarium.capabilities.corpus.news import IndexingFailed

FAILED = 1
CONFIG_INVALID = 2
ROOT_INACCESSIBLE = 3
BIND_FAILED = 4
INDEX_UNUSABLE = 5
INGESTION_FAILED = 6

_BY_CODE = {
    "USAGE": CONFIG_INVALID,
    "CONFIG_INVALID": CONFIG_INVALID,
    "TLS_CONFIG_INVALID": CONFIG_INVALID,
    "ROOT_INACCESSIBLE": ROOT_INACCESSIBLE,
    "BIND_FAILED": BIND_FAILED,
    "STORE_CORRUPT": INDEX_UNUSABLE,
    "INDEX_VERSION_MISMATCH": INDEX_UNUSABLE,
    "INDEX_LOCKED": INDEX_UNUSABLE,
    "INGESTION_FAILED": INGESTION_FAILED,
}
_MENDED_BY_BUILDING_ANEW = {error.code: error for error in (StoreCorrupt, IndexVersionMismatch)}
_STORAGE_TROUBLES = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}


class IngestionFailed(ArmariumError):
    """Indexing could not go on: the directory or the state is out of reach."""

    code = "INGESTION_FAILED"


class IndexIncomplete(ArmariumError):
    """The index was built, and some of it has no vectors because the provider refused."""

    code, retryable = "INDEX_INCOMPLETE", True


def cannot_index(news: IndexingFailed) -> ArmariumError:
    """What the command says that ends because indexing did."""
    if news.code in _MENDED_BY_BUILDING_ANEW:
        return _MENDED_BY_BUILDING_ANEW[news.code](news.message, hint="run: dir2mcp reindex")
    reason = news.message if news.code == IngestionFailed.code else f"{news.code}: {news.message}"
    return IngestionFailed(f"indexing cannot go on: {reason}", hint="mend that and run: dir2mcp up")


def exit_code(error: ArmariumError) -> int:
    """What the contract's table has for an error."""
    return _BY_CODE.get(error.code, FAILED)


def error_lines(error: ArmariumError) -> Iterator[str]:
    """The error for a person: what happened, then what to do."""
    yield f"ERROR: {error.code}: {error.message}"
    lines = (error.hint or "").splitlines()
    # Instructions of several lines stand as the contract writes them.
    yield from [f"hint: {lines[0]}"] if len(lines) == 1 else lines


def known(error: BaseException) -> BaseException:
    """Storage that refuses is an error of ours; any other is itself."""
    if isinstance(error, OSError) and error.errno in _STORAGE_TROUBLES:
        return IngestionFailed(
            f"the state cannot be written: {error.strerror}", hint="make room, or choose another --state-dir"
        )
    return error
