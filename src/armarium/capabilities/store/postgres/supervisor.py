"""The process that runs PostgreSQL while it has users, and restarts it after a crash.

It is a separate process because its users start and end in any order: the process that started it may end long before
the last user. It imports little and has no threads.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.capabilities.store.postgres.account import adopt_orphans, die_with_parent, leave_root
from armarium.capabilities.store.postgres.cluster import (
    START_TIMEOUT_S,
    create_cluster,
    environment,
    forget_running,
    is_ready,
    remove_unfinished,
    server_command,
    why_not,
)
from armarium.capabilities.store.postgres.home import Home, Lock, open_lock

_LOOK_FOR_USERS_S = 0.25
_LOOK_FOR_START_S = 0.02
_LONGEST_LOOK_S = 0.5
_PARTING_S = 10.0
"""How long users may continue after SIGTERM: at a shutdown, all processes receive it at once."""
_FAST_STOP_S = 20.0
_HARD_STOP_S = 10.0
_ORPHANS_S = 5.0
_RESTARTS = 6
_FIRST_PAUSE_S = 0.2
_RUNS_WELL_AFTER_S = 60.0


class Supervisor:
    def __init__(self, home: Home, binaries: Path, socket_directory: Path) -> None:
        self._home = home
        self._command = server_command(home, binaries, socket_directory)
        self._binaries = binaries
        self._socket_directory = socket_directory
        self._server: subprocess.Popen[bytes] | None = None
        self._log_begin = 0
        self._stop_requested_at: float | None = None
        self._woken, self._waker = os.pipe()
        # Opened before root privileges are dropped.
        self._users = open_lock(home.lock_path("users"))

    def start(self) -> None:
        """Create the cluster if needed, start the server, and wait until it is ready. Raises if it fails."""
        self._listen_to_signals()
        deadline = time.monotonic() + START_TIMEOUT_S
        remove_unfinished(self._home)
        if not self._home.data.exists():
            create_cluster(self._home, self._binaries)
        self._run_server(deadline)

    def keep(self) -> None:
        """Run until the last user has ended and the server has stopped."""
        pause, restarts, began = _FIRST_PAUSE_S, 0, time.monotonic()
        while not self._is_over():
            if self._server is not None and self._server.poll() is None:
                self._rest(_LOOK_FOR_USERS_S)
                continue
            if time.monotonic() - began > _RUNS_WELL_AFTER_S:
                pause, restarts = _FIRST_PAUSE_S, 0
            if restarts == _RESTARTS or self._stop_requested_at is not None:
                break
            restarts, began = restarts + 1, time.monotonic()
            try:
                self._run_server(began + START_TIMEOUT_S)
            except DatabaseUnavailable:
                self._rest(pause)
                pause *= 2
        self.stop()

    def stop(self) -> None:
        """Stop the server, with a checkpoint if possible, otherwise immediately. No committed data is lost."""
        for how, timeout_s in ((signal.SIGINT, _FAST_STOP_S), (signal.SIGQUIT, _HARD_STOP_S), (signal.SIGKILL, None)):
            if self._server is None or self._server.poll() is not None:
                break
            # PostgreSQL 18 never ends if it receives SIGINT while it recovers from the crash of a backend.
            if how == signal.SIGINT and not is_ready(self._socket_directory):
                continue
            self._server.send_signal(how)
            with suppress(subprocess.TimeoutExpired):
                self._server.wait(timeout_s)
        self._end_orphans()

    def _run_server(self, deadline: float) -> None:
        self._end_orphans()
        with open_lock(self._home.lock_path("server")) as lock:
            while not lock.take():
                # Processes of a server whose supervisor was killed are still ending.
                if time.monotonic() > deadline:
                    raise DatabaseUnavailable(
                        "an earlier PostgreSQL does not end", hint="end its processes, then start again"
                    )
                self._rest(_LOOK_FOR_START_S)
            forget_running(self._home, self._socket_directory)
            self._launch(lock)
        pause_s = _LOOK_FOR_START_S
        while not is_ready(self._socket_directory):
            assert self._server is not None
            if self._server.poll() is not None:
                raise why_not(self._said_since_launch())
            if time.monotonic() > deadline:
                self.stop()
                raise DatabaseUnavailable(
                    "PostgreSQL takes too long to start",
                    hint="see postgres.log in the directory of the database, and start again",
                    private={"log": self._said_since_launch()[-2000:]},
                )
            self._rest(pause_s)
            # The server logs each refused connection, and a long recovery should not fill the log.
            pause_s = min(pause_s * 1.5, _LONGEST_LOOK_S)

    def _launch(self, lock: Lock) -> None:
        with self._home.open_log() as log:
            self._log_begin = log.seek(0, os.SEEK_END)
            self._server = subprocess.Popen(  # noqa: S603 a program of an installed package
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home.data,
                env=environment(),
                # Every process of the server inherits the lock, which is released when the last of them ends.
                pass_fds=(lock.descriptor,),
                # A server without a supervisor would run for ever, so it must end at once (SIGQUIT).
                preexec_fn=die_with_parent(os.getpid(), signal.SIGQUIT),
            )

    def _said_since_launch(self) -> str:
        with self._home.log.open("rb") as log:
            log.seek(self._log_begin)
            return log.read().decode(errors="replace")

    def _end_orphans(self) -> None:
        """End backends whose server was killed: a long query would delay the next start."""
        for how in (signal.SIGQUIT, signal.SIGKILL):
            deadline = time.monotonic() + _ORPHANS_S
            for child in _children():
                with suppress(ProcessLookupError):
                    os.kill(child, how)
            while _children() and time.monotonic() < deadline:
                with suppress(ChildProcessError):
                    while os.waitpid(-1, os.WNOHANG)[0]:
                        pass
                self._rest(_LOOK_FOR_START_S)

    def _is_over(self) -> bool:
        # Once acquired, the lock is held until this process ends: a new user waits, then starts another supervisor.
        if self._users.take():
            return True
        return self._stop_requested_at is not None and time.monotonic() > self._stop_requested_at + _PARTING_S

    def _listen_to_signals(self) -> None:
        os.set_blocking(self._waker, False)
        os.set_blocking(self._woken, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end_soon)
        for number in (signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, lambda number, frame: None)

    def _end_soon(self, number: int, frame: Any) -> None:
        self._stop_requested_at = self._stop_requested_at or time.monotonic()

    def _rest(self, seconds: float) -> None:
        """Sleep until a child ends or a signal arrives, at most this long."""
        if select.select([self._woken], [], [], seconds)[0]:
            os.read(self._woken, 4096)


def _children() -> set[int]:
    try:
        return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))
    except OSError:
        return set()


def _report(to: int, **facts: Any) -> None:
    with suppress(BrokenPipeError), os.fdopen(to, "w") as file:
        json.dump(facts, file)


def main() -> int:
    """Run the supervisor in a forked process, so that the starting process need not wait for its end. Reports to the
    starting process when the server is ready, or why it failed."""
    root, binaries, socket_directory = map(Path, sys.argv[1:4])
    lock, report = map(int, sys.argv[4:6])
    os.set_inheritable(lock, False)
    os.set_inheritable(report, False)
    if os.fork():
        return 0
    os.umask(0o077)
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        supervisor = Supervisor(Home(root), binaries, socket_directory)
        leave_root((root, socket_directory), binaries)
        adopt_orphans()
        try:
            supervisor.start()
        except BaseException:
            supervisor.stop()
            raise
    except (DatabaseUnavailable, OSError) as error:
        failure = error if isinstance(error, DatabaseUnavailable) else why_not(str(error))
        _report(report, message=failure.message, hint=failure.hint, private=dict(failure.private))
        return 1
    _report(report)
    supervisor.keep()
    return 0


if __name__ == "__main__":
    sys.exit(main())
