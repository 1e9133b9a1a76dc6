"""Memory that is not needed any more."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def give_memory_back() -> None:
    """Hand what was freed to the system. The C library keeps it otherwise, after a large index as much as it took."""
    # Only glibc has it; elsewhere nothing happens.
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
