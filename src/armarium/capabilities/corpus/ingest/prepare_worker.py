"""The worker process that prepares files: they come open on standard input, outcomes go to standard output.

What it holds is what a hostile file can reach: the files it is handed, the code it runs, and the way back.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import asdict
from typing import Any

from armarium.capabilities.corpus.ingest.answers import framed_answer
from armarium.capabilities.corpus.ingest.frames import LENGTH, framed, parsed
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.capabilities.corpus.ingest.prepare import Preparation
from armarium.capabilities.corpus.ingest.prepared import Wanted
from armarium.foundation.processes.isolation import (
    Isolation,
    end_with_parent,
    isolate_process,
    limit_resources,
    python_code_paths,
)

_OPEN_FILES = 256
"""A few for Python and its libraries, and one for each file that waits."""
_POLITENESS = 5


def main() -> None:
    """Work until standard input ends, which it does when the server is gone."""
    end_with_parent()
    os.nice(_POLITENESS)
    requests = _Requests()
    sink = os.fdopen(os.dup(1), "wb", buffering=1 << 20)
    # Whatever a library prints must not come between the messages.
    os.dup2(2, 1)
    start, _ = requests.take()
    limit_resources(start["memory_bytes"], _OPEN_FILES)
    isolation = isolate_process(python_code_paths()) if start["isolated"] else Isolation(0, seccomp=False)
    preparation = Preparation(Instructions.from_json(start["instructions"]))
    # Whoever hears this knows that what goes wrong from here on is the fault of a file.
    sink.write(framed(asdict(isolation)))
    sink.flush()
    while True:
        told, fd = requests.take()
        try:
            for outcome in preparation.prepare(fd, Wanted(*told)):
                sink.write(framed_answer(outcome))
            sink.flush()
        finally:
            os.close(fd)


class _Requests:
    """What the server asks for: messages on a socket, each with an open file but the first."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=0)

    def take(self) -> tuple[Any, int]:
        """The next message and its file, -1 where it has none; ends the process when there is nobody left to ask."""
        header, fds, _, _ = socket.recv_fds(self._socket, LENGTH.size, 1)
        (length,) = LENGTH.unpack(header + self._read(LENGTH.size - len(header)))
        return parsed(self._read(length)), fds[0] if fds else -1

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            part = self._socket.recv(size)
            if not part:
                sys.exit(0)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


if __name__ == "__main__":
    main()
