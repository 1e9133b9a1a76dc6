"""Memory that is not needed any more."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

_M_ARENA_MAX = -8


def share_one_heap() -> None:
    """Make the threads of this process allocate from one heap; for its start, before there are threads.

    By default glibc gives threads heaps of their own. Each keeps up to twice the largest block it has freed, and
    `malloc_trim` cannot reach the end of any but the first. glibc's own variables take precedence.
    """
    if "MALLOC_ARENA_MAX" in os.environ or "glibc.malloc.arena_max" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def give_memory_back() -> None:
    """Hand what was freed to the system. The C library keeps it otherwise, after a large index as much as it took."""
    # Only glibc has it; elsewhere nothing happens.
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def machine_memory_bytes() -> int:
    """What there is for this process at most: the machine's memory, or less where a container allows less."""
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError), open(file) as limit:
            available = min(available, int(limit.read()))
    return available
