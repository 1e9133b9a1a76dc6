"""Records of the servers that run with a state directory, so that commands can find them."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from armarium.foundation.files.state_files import make_private_directory, open_regular

_DIRECTORY = "servers"
_MAX_BYTES = 4096


@dataclass(frozen=True, slots=True)
class RunningServer:
    address: str
    """Its URL, without a path."""
    needs_key: bool
    started_at: float


@contextmanager
def recorded(state_dir: Path, server: RunningServer) -> Generator[None]:
    """Record the server inside the block. The record is locked, so a killed server is not taken for a running one."""
    directory = state_dir / _DIRECTORY
    make_private_directory(directory)
    path = directory / f"{os.getpid()}.json"
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        json.dump(asdict(server), file)
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def running_servers(state_dir: Path) -> list[RunningServer]:
    """The servers that run now, the newest first. Records of killed servers are removed."""
    records = (state_dir / _DIRECTORY).glob("*.json")
    found = [server for each in records if (server := _running(each)) is not None]
    return sorted(found, key=lambda server: server.started_at, reverse=True)


def _running(record: Path) -> RunningServer | None:
    try:
        with open_regular(record) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return RunningServer(**json.loads(file.read(_MAX_BYTES)))
            record.unlink(missing_ok=True)
    except (OSError, ValueError, TypeError):
        # Being written, already removed, or not ours.
        pass
    return None
