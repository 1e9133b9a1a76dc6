"""An isolated process can use open files, compute and start threads, and nothing else."""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from armarium.foundation.processes import seccomp
from armarium.foundation.processes.isolation import Isolation, available_isolation, isolate_process
from armarium.foundation.processes.memory import machine_memory_bytes

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
ISOLATED = """
import json, os, resource, sys, threading
from armarium.foundation.processes.isolation import isolate_process, limit_resources, python_code_paths
kept = open(sys.argv[1])
limit_resources(1 << 30, 64)
isolation = isolate_process(python_code_paths())
def attempt(action):
    try:
        action()
    except Exception as error:
        return type(error).__name__
    return "done"
thread = threading.Thread(target=lambda: None)
import colorsys, wave  # modules that were not imported before
print(json.dumps({
    "complete": isolation.is_complete,
    "read what is open": kept.read(),
    "read again": attempt(lambda: open(sys.argv[1]).read()),
    "start a thread": attempt(lambda: (thread.start(), thread.join())),
    "use much memory": attempt(lambda: bytearray(2 << 30)),
    "open many files": attempt(lambda: [os.dup(0) for _ in range(100)]),
    "raise a limit": attempt(lambda: resource.setrlimit(resource.RLIMIT_CORE, (1, 1))),
    "signal itself": attempt(lambda: os.kill(os.getpid(), 0)),
    "signal its parent": attempt(lambda: os.kill(os.getppid(), 0)),
}))
"""

needs_all_of_it = pytest.mark.skipif(
    not available_isolation().is_complete, reason="the kernel has no Landlock or no seccomp"
)


@needs_all_of_it
def test_an_isolated_process_computes_imports_and_reads_what_it_holds_and_no_more(tmp_path: Path) -> None:
    file = tmp_path / "held.txt"
    file.write_text("held")
    ended = subprocess.run(
        [sys.executable, "-c", ISOLATED, str(file)], capture_output=True, text=True, timeout=120, check=True
    )
    assert json.loads(ended.stdout) == {
        "complete": True,
        "read what is open": "held",
        "read again": "PermissionError",
        "start a thread": "done",
        "use much memory": "MemoryError",
        "open many files": "OSError",
        "raise a limit": "ValueError",  # how the standard library tells EPERM
        "signal itself": "done",
        "signal its parent": "PermissionError",
    }


def test_a_process_with_threads_is_not_isolated_by_halves() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="single thread"):
            isolate_process([])
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("machine", HEADERS)
def test_the_numbers_of_system_calls_are_those_of_the_kernels_headers(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not HEADERS[machine].exists():
        pytest.skip("the kernel's headers are not installed")
    official = {
        name: int(number)
        for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)$", HEADERS[machine].read_text(), re.M)
    }
    monkeypatch.setattr(platform, "machine", lambda: machine)
    for table in ("_DENIED", "_ABSENT", "_CHECKED"):
        ours = seccomp._numbers(getattr(seccomp, table))  # pyright: ignore[reportPrivateUsage] the table is what is tested
        # Headers may be older than some calls.
        assert {name: number for name, number in ours.items() if official.get(name, number) != number} == {}
        known = [name for name in ours if name in official]
        assert len(known) > 0.9 * len(ours)


def test_what_is_missing_is_told() -> None:
    assert Isolation(7, seccomp=True).missing == ""
    assert "Landlock" in Isolation(0, seccomp=True).missing
    assert "seccomp" in Isolation(7, seccomp=False).missing
    assert not Isolation(7, seccomp=False).is_complete


def test_a_machine_has_memory() -> None:
    assert machine_memory_bytes() > 100_000_000


def judged(program: bytes, architecture: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """What the kernel would do with one call, as its filter says."""
    call = struct.pack("=iIQ6Q", number, architecture, 0, *(*arguments, *(0,) * (6 - len(arguments))))
    steps = list(struct.iter_unpack("=HBBI", program))
    at = loaded = 0
    while True:
        code, then_skip, else_skip, value = steps[at]
        at += 1
        if code == 0x20:
            (loaded,) = struct.unpack_from("=I", call, value)
        elif code == 0x06:
            return value
        else:
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
            at += then_skip if holds else else_skip


@pytest.mark.parametrize(("machine", "architecture"), [("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)])
def test_the_filter_of_each_architecture_allows_and_denies_what_it_should(
    machine: str, architecture: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    program = seccomp._program()  # pyright: ignore[reportPrivateUsage] it cannot be loaded on another machine
    allow, denied, absent = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS

    def judge(number: int, *arguments: int) -> int:
        return judged(program, architecture, number, arguments)

    # read, write, mmap, munmap, futex, exit_group
    harmless = {"x86_64": (0, 1, 9, 11, 202, 231), "aarch64": (63, 64, 222, 215, 98, 94)}[machine]
    assert {judge(number) for number in harmless} == {allow}
    tables = {name: seccomp._numbers(getattr(seccomp, name)) for name in ("_DENIED", "_ABSENT", "_CHECKED")}  # pyright: ignore[reportPrivateUsage] the table is what is tested
    assert {judge(number) for number in tables["_DENIED"].values()} == {denied}
    assert {judge(number) for number in tables["_ABSENT"].values()} == {absent}
    assert (judge(471), judge(0x40000000 | 41)) == (absent, absent)
    checked, own_pid = tables["_CHECKED"], os.getpid()
    assert (judge(checked["clone"], 0x10000), judge(checked["clone"], 17)) == (allow, denied)
    for name in ("kill", "tgkill"):
        assert (judge(checked[name], own_pid), judge(checked[name], 1)) == (allow, denied)
    assert judge(checked["openat"], 0, 0, os.O_RDONLY) == allow
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC):
        assert judge(checked["openat"], 0, 0, flags) == denied
    assert judge(checked["prlimit64"], 0, 0, 0) == allow
    assert {judge(checked["prlimit64"], 0, 0, new) for new in (1, 1 << 32)} == {denied}
    other = {"x86_64": 0xC00000B7, "aarch64": 0x40000003}[machine]
    assert judged(program, other, harmless[0]) == 0x80000000
