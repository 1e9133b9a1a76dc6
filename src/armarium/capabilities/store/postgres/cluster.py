"""Makes a database cluster, says how it is run, and understands what it says of itself."""

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

ROLE = "armarium"
DATABASE = "armarium"

_SUPERUSER = "postgres"
_UNFINISHED = "data.new-"
_PATIENCE_S = 300.0
_PROBE_PATIENCE_S = 2.0

# As much of PostgreSQL's protocol as asking for a connection takes.
_NAMES = f"user\0{ROLE}\0database\0{DATABASE}\0\0".encode()
_HELLO = struct.pack("!ii", 8 + len(_NAMES), 3 << 16) + _NAMES
_GOODBYE = struct.pack("!ci", b"X", 4)
_WELCOME, _REFUSAL = b"R", b"E"
_CANNOT_CONNECT_NOW = b"C57P03\0"

# Written into postgresql.conf, where the operator may change them: a small server beside others on the machine.
_TUNING = {
    "shared_buffers": "64MB",
    "max_connections": "100",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

# Given at each start, so that no file overrides them. Nothing that files contain may reach the log: messages about
# statements quote values, details quote rows, so only what the server says of itself is logged.
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

# Whoever can reach the socket is the owner of the data, because the socket lies in a directory only the owner can
# enter; asking for a password would add nothing. Over the socket nobody is a superuser.
_ACCESS = f"local {DATABASE} {ROLE} trust\n"

_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded")


def create_cluster(home: Home, binaries: Path) -> None:
    """Make the data directory with its role, database and extension: all of it, or nothing."""
    fresh = home.root / f"{_UNFINISHED}{secrets.token_hex(4)}"
    tuning = [argument for name, value in _TUNING.items() for argument in ("--set", f"{name}={value}")]
    try:
        _run(
            [
                *(binaries / "initdb", "-D", fresh, "-U", _SUPERUSER, "--auth=trust", "--encoding=UTF8", "--locale=C"),
                *("--data-checksums", "--no-instructions", *tuning),
            ]
        )
        _as_superuser(binaries, fresh, "postgres", f"CREATE ROLE {ROLE} LOGIN;")
        _as_superuser(binaries, fresh, "postgres", f"CREATE DATABASE {DATABASE} OWNER {ROLE};")
        _as_superuser(binaries, fresh, DATABASE, "CREATE EXTENSION vector;")
        (fresh / "pg_hba.conf").write_text(_ACCESS)
        fresh.rename(home.data)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    _make_durable(home.root)


def remove_unfinished(home: Home) -> None:
    """Forget what became of attempts that were interrupted."""
    for leftover in home.root.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def server_command(home: Home, binaries: Path, socket_directory: Path) -> list[str]:
    """How the server is run."""
    settings = _FIXED | {"unix_socket_directories": str(socket_directory)}
    chosen = [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
    return [str(binaries / "postgres"), "-D", str(home.data), *chosen]


def environment() -> dict[str, str]:
    """What PostgreSQL's programs see of ours: no setting of a client, no secret."""
    kept = {name: value for name in ("PATH", "LD_LIBRARY_PATH") if (value := os.environ.get(name)) is not None}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def supervisor_environment() -> dict[str, str]:
    """What the supervisor sees of ours: it outlives its starter, and is there for others as well."""
    kept = {name: value for name in ("PYTHONPATH", "PYTHONHOME") if (value := os.environ.get(name)) is not None}
    return environment() | kept


def is_ready(socket_directory: Path) -> bool:
    """Whether the server accepts connections: not while it recovers, and not while it stops."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_PATIENCE_S)
        try:
            probe.connect(str(socket_directory / SOCKET_NAME))
            probe.sendall(_HELLO)
            said = probe.recv(4096)
            if said.startswith(_WELCOME):
                probe.sendall(_GOODBYE)
        except OSError:
            return False
    # A server that refuses for another reason, such as too many connections, is one that runs.
    return said.startswith(_WELCOME) or (said.startswith(_REFUSAL) and _CANNOT_CONNECT_NOW not in said)


def forget_running(home: Home, socket_directory: Path) -> None:
    """Remove what a killed server says of itself; only for who holds the server's lock.

    PostgreSQL would not start if another process had the same number by now, or if nobody had buried the old one.
    """
    (home.data / "postmaster.pid").unlink(missing_ok=True)
    (socket_directory / f"{SOCKET_NAME}.lock").unlink(missing_ok=True)


def why_not(output: str) -> DatabaseUnavailable:
    """What to tell the operator, when a program of PostgreSQL ended with these words."""
    if _NO_ROOM.search(output):
        return disk_full()
    return DatabaseUnavailable(
        "PostgreSQL does not start",
        hint="see postgres.log in the directory of the database",
        private={"log": output[-2000:]},
    )


def _as_superuser(binaries: Path, data: Path, database: str, statement: str) -> None:
    # One process without a server: nobody can connect before the cluster is complete.
    strict = ("-c", "exit_on_error=on")
    _run([binaries / "postgres", "--single", "-D", data, *strict, database], statement)


def _run(command: Sequence[str | Path], words: str = "") -> None:
    try:
        ended = subprocess.run(  # noqa: S603 a program of an installed package
            command,
            input=f"{words}\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_PATIENCE_S,
            env=environment(),
            preexec_fn=die_with_parent(os.getpid(), signal.SIGKILL),  # The supervisor has no threads.
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise why_not(str(error)) from error
    if ended.returncode:
        raise why_not(ended.stdout)


def _make_durable(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
