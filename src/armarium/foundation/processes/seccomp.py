"""Denies system calls with a seccomp filter: network, other processes, writing, kernel administration."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

_libc = ctypes.CDLL(None, use_errno=True)

_SET_MODE_FILTER = 1
_GET_ACTION_AVAIL = 2
_ALL_THREADS = 1
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL_PROCESS = 0x80000000

_LOAD = 0x20
_EQUAL = 0x15
_AT_LEAST = 0x35
_ANY_BIT = 0x45
_RETURN = 0x06

_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_CLONE_THREAD = 0x10000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_X32_CALLS = 0x40000000
_FIRST_UNKNOWN_CALL = 471
"""Calls from here on are newer than this table. They fail with ENOSYS, so that libraries use older ones."""

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

# Name, number on x86_64, number on aarch64; `-` where the architecture lacks the call.
_DENIED = """
socket 41 198, socketpair 53 199, bind 49 200, listen 50 201, accept 43 202, accept4 288 242, connect 42 203,

fork 57 -, vfork 58 -, execve 59 221, execveat 322 281, ptrace 101 117, process_vm_readv 310 270,
process_vm_writev 311 271, process_madvise 440 440, process_mrelease 448 448, pidfd_open 434 434, pidfd_getfd 438 438,
pidfd_send_signal 424 424, kcmp 312 272, tkill 200 130, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240,
setpriority 141 140, sched_setscheduler 144 119, sched_setparam 142 118, sched_setattr 314 274,
sched_setaffinity 203 122, ioprio_set 251 30, setpgid 109 154, setsid 112 157, migrate_pages 256 238,
move_pages 279 239,

setrlimit 160 164, setuid 105 146, setgid 106 144, setreuid 113 145, setregid 114 143, setresuid 117 147,
setresgid 119 149, setfsuid 122 151, setfsgid 123 152, setgroups 116 159, capset 126 91, personality 135 92,

mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, move_mount 429 429, open_tree 428 428, fsopen 430 430,
fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442, open_tree_attr 467 467, unshare 272 97,
setns 308 268, swapon 167 224, swapoff 168 225, quotactl 179 60, quotactl_fd 443 443, name_to_handle_at 303 264,
open_by_handle_at 304 265, fanotify_init 300 262, inotify_init 253 -, inotify_init1 294 26,

bpf 321 280, perf_event_open 298 241, io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427,
io_setup 206 0, io_submit 209 2, userfaultfd 323 282, keyctl 250 219, add_key 248 217, request_key 249 218,
init_module 175 105, finit_module 313 273, delete_module 176 106, kexec_load 246 104, kexec_file_load 320 294,
reboot 169 142, acct 163 89, syslog 103 116, vhangup 153 58, iopl 172 -, ioperm 173 -, modify_ldt 154 -, uselib 134 -,
lookup_dcookie 212 18, nfsservctl 180 42, sysfs 139 -, _sysctl 156 -, settimeofday 164 170, clock_settime 227 112,
clock_adjtime 305 266, adjtimex 159 171, sethostname 170 161, setdomainname 171 162,

memfd_create 319 279, memfd_secret 447 447, shmget 29 194, shmat 30 196, shmctl 31 195, msgget 68 186, msgsnd 69 189,
msgrcv 70 188, msgctl 71 187, semget 64 190, semop 65 193, semctl 66 191, semtimedop 220 192, mq_open 240 180,
mq_unlink 241 181,

creat 85 -, truncate 76 45, ftruncate 77 46, fallocate 285 47, mkdir 83 -, mkdirat 258 34, rmdir 84 -, rename 82 -,
renameat 264 38, renameat2 316 276, link 86 -, linkat 265 37, symlink 88 -, symlinkat 266 36, unlink 87 -,
unlinkat 263 35, mknod 133 -, mknodat 259 33, chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -,
fchown 93 55, lchown 94 -, fchownat 260 54, utime 132 -, utimes 235 -, utimensat 280 88, futimesat 261 -,
setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16,
setxattrat 463 463, removexattrat 466 466, file_setattr 469 469
"""

# A filter cannot inspect arguments in memory. Libraries fall back to the older calls.
_ABSENT = "clone3 435 435, openat2 437 437"

_CHECKED = "clone 56 220, kill 62 129, tgkill 234 131, open 2 -, openat 257 56, prlimit64 302 261, seccomp 317 277"


def _numbers(table: str) -> dict[str, int]:
    """The calls of a table that this architecture has."""
    column = _ARCHITECTURES[platform.machine()][0]
    rows = [row.split() for row in table.split(",")]
    return {name: int(numbers[column]) for name, *numbers in rows if numbers[column] != "-"}


def is_supported() -> bool:
    """Whether the kernel has seccomp filters and the table has the numbers of this architecture."""
    if platform.machine() not in _ARCHITECTURES or struct.calcsize("P") != 8:
        return False
    number = _numbers(_CHECKED)["seccomp"]
    return _libc.syscall(number, _GET_ACTION_AVAIL, 0, struct.pack("=I", _KILL_PROCESS)) == 0


def forbid_dangerous_calls() -> bool:
    """Install the filter for all threads of this process. Returns False if the kernel has no seccomp filters.

    Denied with EPERM: network, starting programs or processes, signalling or inspecting other processes, changing
    files or limits, and parts of the kernel that a parser does not need. Threads may be started. The filter cannot be
    removed. The caller must have set no-new-privileges.
    """
    if not is_supported():
        return False
    program = _program()
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    answer: int = _libc.syscall(_numbers(_CHECKED)["seccomp"], _SET_MODE_FILTER, _ALL_THREADS, header)
    if answer != 0:
        number = ctypes.get_errno() if answer < 0 else errno.EBUSY
        raise OSError(number, os.strerror(number))
    return True


def _program() -> bytes:
    checked = _numbers(_CHECKED)
    own_pid = os.getpid()
    parts = [
        _step(_LOAD, _ARCHITECTURE_AT),
        _step(_EQUAL, _ARCHITECTURES[platform.machine()][1], 1, 0),
        _step(_RETURN, _KILL_PROCESS),
        _step(_LOAD, _NUMBER_AT),
        _deny_if(_AT_LEAST, _X32_CALLS, errno.ENOSYS),
        _deny_if(_AT_LEAST, _FIRST_UNKNOWN_CALL, errno.ENOSYS),
        *(_deny_if(_EQUAL, number, errno.ENOSYS) for number in _numbers(_ABSENT).values()),
        *(_deny_if(_EQUAL, number, errno.EPERM) for number in _numbers(_DENIED).values()),
        _check(checked["clone"], _step(_LOAD, _argument(0)), _deny_unless(_ANY_BIT, _CLONE_THREAD)),
        _check(checked["kill"], _step(_LOAD, _argument(0)), _deny_unless(_EQUAL, own_pid)),
        _check(checked["tgkill"], _step(_LOAD, _argument(0)), _deny_unless(_EQUAL, own_pid)),
        _check(checked["openat"], _step(_LOAD, _argument(2)), _deny_if(_ANY_BIT, _WRITING, errno.EPERM)),
        # Reading a limit has no new one: its pointer is null, in both halves.
        _check(
            checked["prlimit64"],
            _step(_LOAD, _argument(2)) + _deny_unless(_EQUAL, 0),
            _step(_LOAD, _argument(2) + 4) + _deny_unless(_EQUAL, 0),
        ),
        _step(_RETURN, _ALLOW),
    ]
    if "open" in checked:
        flags = _deny_if(_ANY_BIT, _WRITING, errno.EPERM)
        parts.insert(-1, _check(checked["open"], _step(_LOAD, _argument(1)), flags))
    return b"".join(parts)


def _step(code: int, value: int, then_skip: int = 0, else_skip: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then_skip, else_skip, value)


def _deny_if(test: int, value: int, error: int) -> bytes:
    return _step(test, value, 0, 1) + _step(_RETURN, _ERRNO | error)


def _deny_unless(test: int, value: int) -> bytes:
    return _step(test, value, 1, 0) + _step(_RETURN, _ERRNO | errno.EPERM)


def _check(number: int, *steps: bytes) -> bytes:
    """Check the arguments of one call. What the steps do not deny is allowed."""
    body = b"".join(steps) + _step(_RETURN, _ALLOW)
    return _step(_EQUAL, number, 0, len(body) // 8) + body


def _argument(number: int) -> int:
    """Offset of the lower half of an argument; both architectures are little-endian."""
    return 16 + 8 * number
