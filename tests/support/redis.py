"""A real Redis for tests, on a socket of its own, stopped by whoever started it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.waiting import wait_until


@contextmanager
def running_redis() -> Iterator[str]:
    """The address of a new server that keeps nothing on disk. Where Redis is not installed, the test is skipped."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed; scripts/system-deps installs it")
    base = Path(tempfile.mkdtemp(prefix="redis-"))
    address = base / "s"
    server = subprocess.Popen(
        [program, "--port", "0", "--unixsocket", address, "--save", "", "--appendonly", "no", "--dir", base],
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: _answers(address, server))
        yield f"unix://{address}"
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(10)
        shutil.rmtree(base, ignore_errors=True)


def everything_in(redis_url: str) -> bytes:
    """All names and values that Redis holds, one after another."""
    from redis import Redis

    with Redis.from_url(redis_url) as client:
        names = [name for name in client.scan_iter() if isinstance(name, bytes)]
        return b"\n".join(part for name in names for part in (name, client.dump(name) or b"", client.get(name) or b""))


def _answers(address: Path, server: subprocess.Popen[bytes]) -> bool:
    assert server.poll() is None, "redis-server ended at once"
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(address))
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
    except OSError:
        return False
