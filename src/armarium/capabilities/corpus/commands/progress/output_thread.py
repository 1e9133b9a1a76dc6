"""Writes standard output in a thread, so that a slow reader does not block the server."""

from __future__ import annotations

import queue
import threading

from armarium.command_line.output import leave_closed_pipe

_MAX_QUEUED_LINES = 10_000
_CLOSE_TIMEOUT_S = 2.0


class StdoutWriter:
    """Writes lines in a thread. It drops lines if the reader is too slow, and stops if the pipe is closed."""

    def __init__(self) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue(_MAX_QUEUED_LINES)
        self._writer = threading.Thread(target=self._write, name="stdout", daemon=True)
        self._writer.start()

    def line(self, text: str = "") -> None:
        """Queue a line."""
        try:
            self._lines.put_nowait(text)
        except queue.Full:
            return

    def close(self) -> None:
        """Write the queued lines, within a time limit."""
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            return
        self._writer.join(_CLOSE_TIMEOUT_S)

    def _write(self) -> None:
        while (text := self._lines.get()) is not None:
            try:
                print(text, flush=self._lines.empty())
            except (BrokenPipeError, ValueError):
                leave_closed_pipe()
                return
