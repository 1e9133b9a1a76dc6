"""The worker process: receives open files on standard input, prepares them, and writes outcomes to standard output. It
also answers requests about one page of a file.

A hostile file that takes over this process can reach only what it holds: the files it received, the code it runs, and
its output pipe.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import asdict
from typing import Any, cast

from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.capabilities.corpus.ingest.messages import LENGTH, decode_frame, encode_frame, encode_outcome
from armarium.capabilities.corpus.ingest.prepare import Preparation
from armarium.capabilities.corpus.storage.prepared import PrepareRequest
from armarium.foundation.processes.isolation import (
    Isolation,
    end_with_parent,
    isolate_process,
    limit_resources,
    python_code_paths,
)

_OPEN_FILES = 256
"""A few for Python and its libraries, and one for each file in the queue."""
_POLITENESS = 5


def main() -> None:
    """Work until standard input closes, which happens when the server ends."""
    end_with_parent()
    os.nice(_POLITENESS)
    requests = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=0)
    sink = os.fdopen(os.dup(1), "wb", buffering=1 << 20)
    # Output of libraries must not mix with the messages.
    os.dup2(2, 1)
    start, _ = _receive(requests)
    limit_resources(start["memory_bytes"], _OPEN_FILES)
    isolation = isolate_process(python_code_paths()) if start["isolated"] else Isolation(0, seccomp=False)
    instructions = Instructions.from_json(start["instructions"])
    preparation = Preparation(instructions)
    # After this message, every failure is the fault of a file.
    sink.write(encode_frame(asdict(isolation)))
    sink.flush()
    while True:
        fields, fd = _receive(requests)
        try:
            if isinstance(fields, dict):
                # Imported only by workers that are asked for pages.
                from armarium.capabilities.corpus.ingest.page_tasks import page_answer

                sink.write(encode_frame(page_answer(fd, cast("dict[str, Any]", fields), instructions.most_bytes)))
                sink.flush()
                continue
            for outcome in preparation.prepare(fd, PrepareRequest(*fields)):
                sink.write(encode_outcome(outcome))
            sink.flush()
        finally:
            os.close(fd)


def _receive(requests: socket.socket) -> tuple[Any, int]:
    """The next message and its open file, or -1 without one. Ends the process when the server is gone."""
    header, fds, _, _ = socket.recv_fds(requests, LENGTH.size, 1)
    (length,) = LENGTH.unpack(header + _read(requests, LENGTH.size - len(header)))
    return decode_frame(_read(requests, length)), fds[0] if fds else -1


def _read(requests: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0:
        part = requests.recv(size)
        if not part:
            sys.exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


if __name__ == "__main__":
    main()
