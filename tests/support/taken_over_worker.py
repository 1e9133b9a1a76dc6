"""A worker process whose parser was taken over: the real worker, isolated as always, then code of an attacker.

The name of the file it receives selects the attack.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from armarium.capabilities.corpus.ingest import worker as prepare_worker
from armarium.capabilities.corpus.ingest.messages import LENGTH, encode_frame
from armarium.capabilities.corpus.ingest.prepare import Preparation
from armarium.capabilities.corpus.storage.prepared import (
    Finished,
    Outcome,
    Prepared,
    PreparedChunk,
    PrepareRequest,
    Representation,
)

_libc = ctypes.CDLL(None, use_errno=True)
_PTRACE_ATTACH = 16
_SYS_IO_URING_SETUP = 425
_SYS_PROCESS_VM_READV = {"x86_64": 310, "aarch64": 270}

honest = Preparation.prepare


def _called(answer: int) -> str:
    if answer < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return str(answer)


def _connect() -> None:
    with socket.socket() as tcp:
        tcp.connect(("127.0.0.1", 1))


def attempts(told: dict[str, str]) -> dict[str, Callable[[], object]]:
    """What an attacker would try first."""
    server = os.getppid()
    return {
        "read another file": lambda: Path(told["outside"]).read_text(),
        "read another file of the directory": lambda: Path(told["neighbour"]).read_text(),
        "read /etc/passwd": lambda: Path("/etc/passwd").read_text(),
        "read the server's environment": lambda: Path(f"/proc/{server}/environ").read_bytes(),
        "read the server's memory": lambda: open(f"/proc/{server}/mem", "rb"),
        "list a directory": lambda: os.listdir(told["root"]),
        "write a file": lambda: Path(told["root"], "planted.md").write_text("planted"),
        "change a mode": lambda: os.chmod(told["outside"], 0o777),
        "remove a file": lambda: os.unlink(told["outside"]),
        "open a TCP socket": _connect,
        "open a UDP socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "open a Unix socket": lambda: socket.socket(socket.AF_UNIX),
        "start a program": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
        "replace itself by a program": lambda: os.execv("/bin/sh", ["sh", "-c", ":"]),
        "fork": os.fork,
        "kill the server": lambda: os.kill(server, signal.SIGCONT),
        "trace the server": lambda: _called(_libc.ptrace(_PTRACE_ATTACH, server, None, None)),
        "set up io_uring": lambda: _called(_libc.syscall(_SYS_IO_URING_SETUP, 4, None)),
        "read the server's pages": lambda: _called(
            _libc.syscall(_SYS_PROCESS_VM_READV[os.uname().machine], server, None, 0, None, 0, 0)
        ),
        "raise its priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
    }


def _tried(told: dict[str, str]) -> dict[str, str]:
    results: dict[str, str] = {}
    for what, attempt in attempts(told).items():
        try:
            attempt()
        except OSError as error:
            results[what] = type(error).__name__
        else:
            results[what] = "done"
    return results


def _seen() -> dict[str, object]:
    """What the process holds: environment, descriptors, arguments and directory."""
    descriptors: list[str] = []
    for fd in range(256):
        try:
            os.fstat(fd)
        except OSError:
            continue
        descriptors.append(str(fd))
    return {
        "environment": dict(os.environ),
        "descriptors": descriptors,
        "arguments": sys.orig_argv,
        "directory": os.getcwd(),
    }


def _answer(wanted: PrepareRequest, found: object) -> Prepared:
    chunk = PreparedChunk(json.dumps(found), "", b"", "text", "lines", 1, 1)
    meta = {"format": "text", "title": None}
    representation = Representation("raw_text", "0" * 64, [chunk], meta)
    return Prepared(
        wanted.rel_path, "text", wanted.size_bytes, wanted.mtime_ns, "0" * 64, "ok", representations=[representation]
    )


def prepare(self: Preparation, fd: int, wanted: PrepareRequest) -> Iterator[Outcome]:
    """Run the attack that the file name selects. Other files are prepared normally."""
    match wanted.rel_path:
        case "try.json":
            yield _answer(wanted, _tried(json.loads(os.read(fd, 100_000))))
        case "look.txt":
            yield _answer(wanted, _seen())
        case "loop.txt":
            while True:
                pass
        case "wait.txt":
            time.sleep(3600)
        case "trickle.txt":
            os.write(_sink(), LENGTH.pack(1_000_000))
            while True:
                os.write(_sink(), b" ")
                time.sleep(0.001)
        case "flood.txt":
            for number in range(1_000_000):
                yield _answer(wanted, number)
        case "long.txt":
            os.write(_sink(), LENGTH.pack(2**32 - 1) + b"x" * 1000)
            time.sleep(3600)
        case "raw.json":
            os.write(_sink(), encode_frame(json.loads(os.read(fd, 100_000))))
        case _:
            yield from honest(self, fd, wanted)
            return
    yield Finished(wanted.rel_path)


def _sink() -> int:
    """The pipe to the server, the only descriptor it can write to except /dev/null."""
    return 3


if __name__ == "__main__":
    Preparation.prepare = prepare
    prepare_worker.main()
