"""A real PgBouncer in transaction mode, on a loopback port, stopped by whoever started it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from support.waiting import wait_until

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
_NOBODY = 65534
_TIMEOUT_S = 20.0


@contextmanager
def running_pgbouncer(dsn: str, *, sessions: int, mode: str = "transaction", ignored: str = "") -> Iterator[str]:
    """The address of a pooler with so many sessions of the database at `dsn`, which listens on a socket."""
    assert PROGRAM is not None
    host = parse_qs(urlsplit(dsn).query)["host"][0]
    base = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
    port = _free_port()
    lines = [
        "[databases]",
        f"armarium = host={host} dbname=armarium user=armarium",
        "[pgbouncer]",
        "listen_addr = 127.0.0.1",
        f"listen_port = {port}",
        "unix_socket_dir =",
        "auth_type = any",
        f"pool_mode = {mode}",
        f"default_pool_size = {sessions}",
        "max_client_conn = 500",
        *([f"ignore_startup_parameters = {ignored}"] if ignored else []),
    ]
    config = base / "pgbouncer.ini"
    config.write_text("\n".join(lines) + "\n")
    as_other = ["unshare", "--user", f"--map-user={_NOBODY}"] if os.geteuid() == 0 else []
    with (base / "log").open("wb") as log:
        process = subprocess.Popen([*as_other, PROGRAM, config], stdout=log, stderr=log)
        try:
            wait_until(lambda: _accepts_connections(port, process))
            yield f"postgresql://armarium@127.0.0.1:{port}/armarium"
        finally:
            process.terminate()
            try:
                process.wait(_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_TIMEOUT_S)
            shutil.rmtree(base, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _accepts_connections(port: int, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "pgbouncer ended at once"
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
