"""The database cluster: its creation, its command line, its readiness, and its errors."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.capabilities.store.postgres.account import die_with_parent
from armarium.capabilities.store.postgres.home import SOCKET_NAME, Home, disk_full
from armarium.foundation.files.beneath import closed_after

ROLE = "armarium"
DATABASE = "armarium"

START_TIMEOUT_S = 120.0

_SUPERUSER = "postgres"
_UNFINISHED = "data.new-"
_TIMEOUT_S = 300.0
_PROBE_TIMEOUT_S = 2.0

# The part of PostgreSQL's protocol that starts a connection.
_NAMES = f"user\0{ROLE}\0database\0{DATABASE}\0\0".encode()
_HELLO = struct.pack("!ii", 8 + len(_NAMES), 3 << 16) + _NAMES
_GOODBYE = struct.pack("!ci", b"X", 4)
_WELCOME, _REFUSAL = b"R", b"E"
_CANNOT_CONNECT_NOW = b"C57P03\0"

# Written to postgresql.conf, where the operator may change them: a small server that shares the machine.
_TUNING = {
    "shared_buffers": "64MB",
    "max_connections": "100",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

# Passed on the command line, so that no file overrides them. File contents must not reach the log: messages about
# statements quote values and details quote rows, so only messages about the server itself are logged.
_FIXED = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "logging_collector": "off",
    "log_destination": "stderr",
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
    "log_statement": "none",
    "log_min_duration_statement": "-1",
    "log_checkpoints": "off",
    "log_autovacuum_min_duration": "-1",
}

# Only the owner of the data can reach the socket, which is in a private directory, so a password would add nothing.
# No superuser can connect over the socket.
_ACCESS = f"local {DATABASE} {ROLE} trust\n"

_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded")


def create_cluster(home: Home, binaries: Path) -> None:
    """Atomically create the data directory with its role, database and extension."""
    fresh = home.root / f"{_UNFINISHED}{secrets.token_hex(4)}"
    tuning = [argument for name, value in _TUNING.items() for argument in ("--set", f"{name}={value}")]
    try:
        _run(
            [
                *(binaries / "initdb", "-D", fresh, "-U", _SUPERUSER, "--auth=trust", "--encoding=UTF8", "--locale=C"),
                *("--data-checksums", "--no-instructions", *tuning),
            ]
        )
        for database, statement in (
            ("postgres", f"CREATE ROLE {ROLE} LOGIN;"),
            ("postgres", f"CREATE DATABASE {DATABASE} OWNER {ROLE};"),
            (DATABASE, "CREATE EXTENSION vector;"),
        ):
            # Single-user mode: no client can connect before the cluster is complete.
            _run([binaries / "postgres", "--single", "-D", fresh, "-c", "exit_on_error=on", database], statement)
        (fresh / "pg_hba.conf").write_text(_ACCESS)
        fresh.rename(home.data)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    with closed_after(os.open(home.root, os.O_RDONLY | os.O_DIRECTORY)) as directory:
        os.fsync(directory)


def remove_unfinished(home: Home) -> None:
    """Remove the staged directories of interrupted attempts."""
    for leftover in home.root.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def server_command(home: Home, binaries: Path, socket_directory: Path) -> list[str]:
    settings = _FIXED | {"unix_socket_directories": str(socket_directory)}
    chosen = [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
    return [str(binaries / "postgres"), "-D", str(home.data), *chosen]


def environment(*more: str) -> dict[str, str]:
    """The environment of PostgreSQL's programs, without client settings and secrets, and with `more` variables."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", *more) if name in os.environ}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def is_ready(socket_directory: Path) -> bool:
    """Whether the server accepts connections: not while it recovers, and not while it stops."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_TIMEOUT_S)
        try:
            probe.connect(str(socket_directory / SOCKET_NAME))
            probe.sendall(_HELLO)
            said = probe.recv(4096)
            if said.startswith(_WELCOME):
                probe.sendall(_GOODBYE)
        except OSError:
            return False
    # A server that refuses for another reason, such as too many connections, is running.
    return said.startswith(_WELCOME) or (said.startswith(_REFUSAL) and _CANNOT_CONNECT_NOW not in said)


def forget_running(home: Home, socket_directory: Path) -> None:
    """Remove the pid files of a killed server. The caller must hold the server's lock. With them, PostgreSQL would not
    start if another process has reused the process id, or if the old one is a zombie."""
    (home.data / "postmaster.pid").unlink(missing_ok=True)
    (socket_directory / f"{SOCKET_NAME}.lock").unlink(missing_ok=True)


def why_not(output: str) -> DatabaseUnavailable:
    """The error for a program of PostgreSQL that failed with this output."""
    if _NO_ROOM.search(output):
        return disk_full()
    return DatabaseUnavailable(
        "PostgreSQL does not start",
        hint="see postgres.log in the directory of the database",
        private={"log": output[-2000:]},
    )


def _run(command: Sequence[str | Path], words: str = "") -> None:
    try:
        ended = subprocess.run(  # noqa: S603 a program of an installed package
            command,
            input=f"{words}\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            env=environment(),
            preexec_fn=die_with_parent(os.getpid(), signal.SIGKILL),  # The supervisor has no threads.
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise why_not(str(error)) from error
    if ended.returncode:
        raise why_not(ended.stdout)
