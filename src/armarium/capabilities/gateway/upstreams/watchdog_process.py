"""The program of the watchdog: ends the servers of a gateway that was killed. It runs as long as the gateway, so it
imports little."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

MARK = "ARMARIUM_UPSTREAM_OF"
"""The environment variable with the gateway's mark."""
GOODBYE = b"."
_GRACE_S = 1.0
"""How long servers may take to end by themselves, and again after SIGTERM."""
_POLL_S = 0.05
_KILL_S = 10.0
"""How long to repeat SIGKILL: a process that waits for a device ends later."""


def main() -> None:
    """Wait for the gateway's end. Without a goodbye, end the processes with the mark that is the only argument."""
    if os.read(0, 1) != GOODBYE:
        # A server that was being started gets its mark within this time.
        time.sleep(_POLL_S)
        end_processes(sys.argv[1])


def end_processes(mark: str) -> None:
    """End all processes with this mark: they may end by themselves, then SIGTERM, then SIGKILL."""
    sessions: set[int] = set()
    deadline = time.monotonic()
    for number, for_s in ((None, _GRACE_S), (signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _KILL_S)):
        deadline += for_s
        while (found := _marked(mark, sessions)) and time.monotonic() < deadline:
            for descriptor in found:
                with suppress(OSError):
                    if number is not None:
                        signal.pidfd_send_signal(descriptor, number)
                os.close(descriptor)
            time.sleep(_POLL_S)


def _marked(mark: str, sessions: set[int]) -> list[int]:
    """Descriptors of the running processes with the mark, and of those in their sessions, which are remembered."""
    found: list[int] = []
    unmarked: list[tuple[int, int]] = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with suppress(OSError, IndexError, ValueError):
            # Opened first: what is read afterwards is about this process, and so is the signal.
            descriptor = os.pidfd_open(int(name))
            try:
                state, session = _state_and_session(name)
                if state in "ZX":
                    continue
                if _has_mark(name, mark):
                    sessions.add(session)
                    found.append(descriptor)
                else:
                    unmarked.append((descriptor, session))
                descriptor = -1
            finally:
                if descriptor >= 0:
                    os.close(descriptor)
    for descriptor, session in unmarked:
        if session in sessions:
            found.append(descriptor)
        else:
            os.close(descriptor)
    return found


def _state_and_session(pid: str) -> tuple[str, int]:
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The name of the program, in parentheses, may contain anything.
        state, _, _, session, *_ = file.read().rpartition(b")")[2].split()
    return state.decode(), int(session)


def _has_mark(pid: str, mark: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{MARK}={mark}".encode() in file.read().split(b"\0")
    except OSError:
        # Of another user, or protected from being read.
        return False


if __name__ == "__main__":
    main()
