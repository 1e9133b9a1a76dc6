"""Embedded PostgreSQL, shared by all processes of a user: started by the first, stopped after the last."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import anyio
from anyio import to_thread

from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.capabilities.store.postgres.cluster import DATABASE, ROLE, environment, is_ready
from armarium.capabilities.store.postgres.home import Home, Lock, open_lock, unusable
from armarium.capabilities.store.postgres.installation import fitting_installation, installations
from armarium.foundation.tasks import background

_START_TIMEOUT_S = 120.0
_LOOK_S = 0.02
_LOOK_FOR_ANSWER_S = 0.1
_WATCH_S = 0.5
_LONGEST_PAUSE_S = 30.0
_LAUNCH_TIMEOUT_S = 30.0

_log = logging.getLogger(__name__)


@asynccontextmanager
async def embedded_postgres(data_dir: Path, *, start_timeout_s: float = _START_TIMEOUT_S) -> AsyncGenerator[str]:
    """The address of a PostgreSQL with its data in `data_dir`, running while the block runs.

    The role owns the database, is not a superuser, and pgvector is installed. If the server or its supervisor is
    killed, connections break, and the same address works again a moment later.
    """
    home = Home(data_dir)
    await to_thread.run_sync(home.prepare)
    deadline = time.monotonic() + start_timeout_s
    with open_lock(home.lock_path("users")) as using:
        # A supervisor that holds the lock exclusively has no more users: it is stopping its server.
        await _take(using, deadline, shared=True)
        server = _SharedServer(home, start_timeout_s)
        socket_directory = await server.ensure_running(deadline)
        async with background(server.watch):
            yield address(socket_directory)


def address(socket_directory: Path) -> str:
    return f"postgresql://{ROLE}@/{DATABASE}?host={quote(str(socket_directory), safe='/')}"


class _SharedServer:
    """The server of a home, from the view of one of its users."""

    def __init__(self, home: Home, start_timeout_s: float) -> None:
        self._home = home
        self._start_timeout_s = start_timeout_s

    async def watch(self) -> None:
        """Start another supervisor whenever the current one has ended."""
        pause = _WATCH_S
        with open_lock(self._home.lock_path("keeper")) as lock:
            while True:
                await anyio.sleep(pause)
                if not lock.take(shared=True):
                    pause = _WATCH_S
                    continue
                lock.release()
                try:
                    await self.ensure_running(time.monotonic() + self._start_timeout_s)
                    _log.warning("the supervisor of the database had ended; another one was started")
                    pause = _WATCH_S
                except DatabaseUnavailable as error:
                    facts = error.private | {"error": error.message}
                    _log.warning("the database cannot be started again", extra=facts)
                    pause = min(pause * 2, _LONGEST_PAUSE_S)

    async def ensure_running(self, deadline: float) -> Path:
        """Start a supervisor if there is none. Returns the directory of the server's socket."""
        with open_lock(self._home.lock_path("start")) as starting:
            await _take(starting, deadline)
            socket_directory = await to_thread.run_sync(self._home.socket_directory)
            while True:
                with open_lock(self._home.lock_path("keeper")) as lock:
                    if lock.take():
                        await self._start_supervisor(lock, socket_directory, deadline)
                        return socket_directory
                # A supervisor runs, and its server may still be starting.
                if await to_thread.run_sync(is_ready, socket_directory):
                    return socket_directory
                await _pause_until(deadline, _LOOK_FOR_ANSWER_S)

    async def _start_supervisor(self, lock: Lock, socket_directory: Path, deadline: float) -> None:
        installation = await to_thread.run_sync(
            lambda: fitting_installation(list(installations()), self._home.data_version())
        )
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb", buffering=0) as report:
            try:
                arguments = (
                    *(self._home.root, installation.binaries, socket_directory),
                    *(lock.descriptor, writing, self._start_timeout_s),
                )
                await to_thread.run_sync(_launch, self._home, arguments, (lock.descriptor, writing))
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
