"""The watchdog of a gateway: a process that ends the gateway's servers if the gateway is killed.

Linux can send a process a signal when its parent ends, but not its descendants, and the signal is bound to the thread
of the parent. So every server has a mark in its environment, which all its descendants inherit, and the watchdog waits
for the end of a pipe that only the gateway holds. It then ends all processes with the mark or in a session of one.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from contextlib import suppress

from armarium.capabilities.gateway.upstreams import watchdog_process

_CLOSE_S = 5.0


class Watchdog:
    """Started with the first server, and again if its process has ended."""

    def __init__(self) -> None:
        self._mark = secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None

    def environment(self) -> dict[str, str]:
        """The environment variable of a server that is about to start and will be watched."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = self._start()
        return {watchdog_process.MARK: self._mark}

    def close(self) -> None:
        """End the process: the gateway has ended its servers."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError):
            process.communicate(watchdog_process.GOODBYE, timeout=_CLOSE_S)
        process.kill()
        process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 this Python, with a program of ours
            [sys.executable, "-I", "-S", watchdog_process.__file__, self._mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
            cwd="/",
            # Signals to the gateway's group, such as Ctrl-C, are not for it.
            start_new_session=True,
        )
