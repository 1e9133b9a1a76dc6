"""Confines a thread or process to a set of directories with Landlock, as a second layer."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
import sysconfig
from collections.abc import Sequence

import armarium
from armarium.foundation.files.beneath import closed_after

# These numbers are the same on every architecture.
_SYS_CREATE_RULESET = 444
_SYS_ADD_RULE = 445
_SYS_RESTRICT_SELF = 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
MAKE_CHAR = 1 << 6
MAKE_BLOCK = 1 << 11
REFER = 1 << 13
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15

_RIGHTS_OF_ABI_1 = (1 << 13) - 1
_RIGHTS_SINCE_ABI = {2: REFER, 3: TRUNCATE, 5: IOCTL_DEV}
_RIGHTS_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_NETWORK_SINCE_ABI = 4
_BIND_AND_CONNECT_TCP = 0b11
_SCOPES_SINCE_ABI = 6
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_NEVER_GRANTED = EXECUTE | IOCTL_DEV | MAKE_CHAR | MAKE_BLOCK
_READ = READ_FILE | READ_DIR

LIBRARY_PATHS = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache")

_libc = ctypes.CDLL(None, use_errno=True)


def supported_abi() -> int:
    """The kernel's Landlock version; 0 if it is missing, disabled, or denied by a container profile."""
    version: int = _libc.syscall(_SYS_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)
    return max(version, 0)


def handled_rights(abi: int) -> int:
    """All file-system rights of this version. Rights that are handled and not granted are denied."""
    return _RIGHTS_OF_ABI_1 | sum(right for since, right in _RIGHTS_SINCE_ABI.items() if abi >= since)


def restrict_current_thread(read_write: Sequence[str], read_only: Sequence[str]) -> bool:
    """Deny the calling thread access outside the given paths. Returns False if the kernel has no Landlock.

    This applies to the thread and to threads and processes it starts afterwards, and cannot be undone. Open descriptors
    keep working. Executing files and creating device nodes is denied everywhere. Paths that do not exist are skipped.
    Landlock 1 (Linux 5.13 to 5.18) cannot allow a rename between two directories: such a rename fails with EXDEV.
    """
    if abi := supported_abi():
        # Only the first field of the kernel's struct; the others are about networks and signals.
        _restrict([handled_rights(abi)], read_write, read_only)
    return abi > 0


def restrict_process(read_only: Sequence[str]) -> int:
    """Deny this process all files except the given ones, all writing, TCP, and signals and abstract sockets of others.
    Returns the kernel's Landlock version, 0 if it has none. TCP needs version 4, signals and sockets version 6. The
    process must have a single thread, because Landlock applies to the calling thread and those it starts afterwards."""
    abi = supported_abi()
    if abi == 0:
        return 0
    fields = [handled_rights(abi)]
    if abi >= _NETWORK_SINCE_ABI:
        fields.append(_BIND_AND_CONNECT_TCP)
    if abi >= _SCOPES_SINCE_ABI:
        fields.append(_ABSTRACT_SOCKETS_AND_SIGNALS)
    _restrict(fields, (), read_only)
    return abi


def forbid_new_privileges() -> None:
    """Ensure that programs started by the calling thread gain no privileges, even with a set-user-id bit."""
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))))


def _restrict(fields: Sequence[int], read_write: Sequence[str], read_only: Sequence[str]) -> None:
    """Apply a ruleset. `fields` are those of the kernel's struct. The first are the handled file-system rights."""
    handled, attributes = fields[0], struct.pack(f"={len(fields)}Q", *fields)
    with closed_after(_checked(_libc.syscall(_SYS_CREATE_RULESET, attributes, len(attributes), 0))) as ruleset:
        for path in read_write:
            _grant(ruleset, path, handled & ~_NEVER_GRANTED)
        for path in read_only:
            _grant(ruleset, path, handled & _READ)
        # Required for threads without privileges.
        forbid_new_privileges()
        _checked(_libc.syscall(_SYS_RESTRICT_SELF, ruleset, 0))


def _grant(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH)
    except (FileNotFoundError, NotADirectoryError):
        return
    with closed_after(fd):
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _RIGHTS_OF_FILES  # The kernel rejects directory rights on a file.
        rule = struct.pack("=Qi", rights, fd)
        _checked(_libc.syscall(_SYS_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0))


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer


def python_read_paths() -> list[str]:
    """Paths that a Python thread must be able to read: interpreter, libraries, users, time zones, certificates. The
    module search path is omitted on purpose: it may contain the working directory, which may be any directory."""
    paths = sysconfig.get_paths()
    wanted = [
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *armarium.__path__,
        *LIBRARY_PATHS,
        *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime", "/usr/share/zoneinfo"),
        *("/etc/ssl", "/etc/pki/tls", "/etc/ca-certificates", "/usr/share/ca-certificates"),
    ]
    return [path for path in dict.fromkeys(wanted) if os.path.exists(path)]
