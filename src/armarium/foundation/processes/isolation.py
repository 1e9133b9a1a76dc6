"""Isolates a process from files, network, other processes and privileges, and limits its resources."""

from __future__ import annotations

import ctypes
import mimetypes
import os
import resource
import signal
import struct
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import armarium
from armarium.foundation.files import landlock
from armarium.foundation.processes import seccomp

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_CAPABILITY_VERSION = 0x20080522
_CAP_DAC_READ_SEARCH = 1 << 2
_LANDLOCK_WITH_NETWORK = 4


@dataclass(frozen=True, slots=True)
class Isolation:
    """How well a process is, or can be, isolated."""

    landlock: int
    """The kernel's Landlock version; 0 if it has none."""
    seccomp: bool

    @property
    def is_complete(self) -> bool:
        """Whether the process can reach neither other files nor the network."""
        return self.landlock > 0 and self.seccomp

    @property
    def missing(self) -> str:
        """What is missing, for a log message; empty if it is complete."""
        absent: list[str] = []
        if not self.landlock:
            absent.append("Landlock (other files can be read)")
        if not self.seccomp:
            reach = "TCP" if self.landlock < _LANDLOCK_WITH_NETWORK else "sockets other than TCP"
            absent.append(f"seccomp ({reach} and other processes can be reached)")
        return ", ".join(absent)


def available_isolation() -> Isolation:
    """The isolation that this kernel supports."""
    return Isolation(landlock.supported_abi(), seccomp.is_supported())


def isolate_process(readable: Sequence[str]) -> Isolation:
    """Isolate this process permanently. It keeps its open descriptors, and can read below the given paths. Parts that
    the kernel lacks are skipped; the result shows which apply. Call it before there are threads."""
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("a process can only be isolated while it has a single thread")
    # No core dumps and no debuggers: both would reveal the text of documents.
    _libc.prctl(_PR_SET_DUMPABLE, *map(ctypes.c_ulong, (0, 0, 0, 0)))
    landlock.forbid_new_privileges()
    _drop_capabilities()
    abi, is_filtered = 0, False
    with suppress(OSError):
        abi = landlock.restrict_process(readable)
    with suppress(OSError):
        is_filtered = seccomp.forbid_dangerous_calls()
    return Isolation(abi, is_filtered)


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent thread ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, *map(ctypes.c_ulong, (signal.SIGKILL, 0, 0, 0)))


def limit_resources(memory_bytes: int, open_files: int) -> None:
    """Limit memory and descriptors, and forbid writing files and dumping cores."""
    for limit, wanted in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, most = resource.getrlimit(limit)
        lowest = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(limit, (lowest, lowest))


def python_code_paths() -> list[str]:
    """Paths that this process must be able to read to import modules and load libraries."""
    paths = sysconfig.get_paths()
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    wanted = [
        *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *(path for path in sys.path if os.path.isabs(path)),
        *armarium.__path__,
        *(os.path.join(prefix, name) for prefix in sorted(prefixes) for name in ("lib", "lib64")),
        *(path for path in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if os.path.isabs(path)),
        *landlock.LIBRARY_PATHS,
        *map(str, mimetypes.knownfiles),
    ]
    return [path for path in dict.fromkeys(wanted) if os.path.exists(path)]


def _drop_capabilities() -> None:
    """Drop all capabilities of root except reading, which imports from other users' directories may need."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    before = ctypes.create_string_buffer(24)
    if _libc.capget(header, before) != 0:
        return
    _, permitted, *_ = struct.unpack("=6I", before.raw)
    kept = permitted & _CAP_DAC_READ_SEARCH
    _libc.capset(header, struct.pack("=6I", kept, kept, 0, 0, 0, 0))
