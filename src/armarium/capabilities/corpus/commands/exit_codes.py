"""Maps errors to the exit codes of the contract, and formats error messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from armarium.capabilities.corpus.errors import IndexVersionMismatch, IngestionFailed, StoreCorrupt
from armarium.foundation.errors import ArmariumError

if TYPE_CHECKING:
    from armarium.capabilities.corpus.events import IndexingFailed

_BY_CODE = {
    "USAGE": 2,
    "CONFIG_INVALID": 2,
    "DIRECTORY_NOT_TRUSTED": 2,
    "TLS_CONFIG_INVALID": 2,
    "ROOT_INACCESSIBLE": 3,
    "BIND_FAILED": 4,
    "STORE_CORRUPT": 5,
    "STATE_NOT_OURS": 5,
    "INDEX_VERSION_MISMATCH": 5,
    "INDEX_LOCKED": 5,
    "INGESTION_FAILED": 6,
}
_REPAIRED_BY_REINDEX = {error.code: error for error in (StoreCorrupt, IndexVersionMismatch)}


class IndexIncomplete(ArmariumError, code="INDEX_INCOMPLETE", retryable=True):
    """The index was built, but the provider did not embed all chunks."""


def indexing_error(event: IndexingFailed) -> ArmariumError:
    """The error of a command that ends because indexing failed."""
    if event.code in _REPAIRED_BY_REINDEX:
        return _REPAIRED_BY_REINDEX[event.code](event.message, hint="run: dir2mcp reindex")
    reason = event.message if event.code == IngestionFailed.code else f"{event.code}: {event.message}"
    return IngestionFailed(f"indexing failed: {reason}", hint="fix the cause, then run: dir2mcp up")


def exit_code(error: ArmariumError) -> int:
    return _BY_CODE.get(error.code, 1)


def error_lines(error: ArmariumError) -> Iterator[str]:
    """The error as text: the message, then the hint."""
    yield f"ERROR: {error.code}: {error.message}"
    lines = (error.hint or "").splitlines()
    # The contract fixes hints of several lines, which have no prefix.
    yield from [f"hint: {lines[0]}"] if len(lines) == 1 else lines


def as_known_error(error: BaseException) -> BaseException:
    """Convert an error of the file system to `IngestionFailed`; return any other error unchanged."""
    if not isinstance(error, OSError):
        return error
    from armarium.capabilities.corpus.storage.errors import UNWRITABLE, unwritable_error

    return unwritable_error(str(error.strerror)) if error.errno in UNWRITABLE else error
