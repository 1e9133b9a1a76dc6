"""Memory of the process: one heap, returning freed memory, how much there is."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

_M_ARENA_MAX = -8


def share_one_heap() -> None:
    """Make all threads of this process allocate from one heap. Call it at the start, before there are threads. By
    default glibc gives threads separate heaps. Each retains up to twice the largest block it has freed, and
    `malloc_trim` shrinks only the first. The environment variables of glibc take precedence."""
    if "MALLOC_ARENA_MAX" in os.environ or "glibc.malloc.arena_max" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def give_memory_back() -> None:
    """Return freed memory to the operating system. The C library would retain it."""
    # Only glibc has it.
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def machine_memory_bytes() -> int:
    """Memory available to this process: that of the machine, or the limit of the container."""
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError), open(file) as limit:
            available = min(available, int(limit.read()))
    return available


def resident_bytes() -> int | None:
    """The physical memory that this process uses; None where the kernel does not tell."""
    try:
        with open("/proc/self/statm") as status:
            return int(status.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
