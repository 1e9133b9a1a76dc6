"""Standard output that nobody waits for: a reader who stops reading must not stop the server."""

from __future__ import annotations

import queue
import threading

from armarium.command_line.output import leave_closed_pipe

_MOST_WAITING = 10_000
_LAST_WORDS_S = 2.0


class Outlet:
    """Writes lines in a thread of its own. What a reader is too slow for is dropped; one who left is not written to."""

    def __init__(self) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue(_MOST_WAITING)
        self._writer = threading.Thread(target=self._write, name="stdout", daemon=True)
        self._writer.start()

    def line(self, text: str = "") -> None:
        """One more line."""
        try:
            self._lines.put_nowait(text)
        except queue.Full:
            return

    def close(self) -> None:
        """Let what was said be read, for a moment."""
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            return
        self._writer.join(_LAST_WORDS_S)

    def _write(self) -> None:
        while (text := self._lines.get()) is not None:
            try:
                print(text, flush=self._lines.empty())
            except (BrokenPipeError, ValueError):
                leave_closed_pipe()
                return
