"""The worker process that prepares files: their names come on standard input, the outcomes go to standard output."""

from __future__ import annotations

import os
import pickle
import resource
import struct
import sys
from collections.abc import Callable
from typing import Any

from armarium.capabilities.corpus.ingest.prepare import Preparation

_LENGTH = struct.Struct("<Q")
_MEMORY_BYTES = 4 * 1024**3
_POLITENESS = 5


def framed(message: Any) -> bytes:
    """A message as it goes through a pipe: its length, then itself."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


def unframed(read: Callable[[int], bytes]) -> Any:
    """The next message; `read` gives exactly as many bytes as it is asked for, or raises."""
    (length,) = _LENGTH.unpack(read(_LENGTH.size))
    # Both ends of the pipe are this program.
    return pickle.loads(read(length))  # noqa: S301


def main() -> None:
    """Work until standard input ends, which it does when the server is gone."""
    # A file that unpacks into more than this fails alone instead of taking the machine down.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    os.nice(_POLITENESS)
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", buffering=1 << 20)
    # Whatever a library prints must not come between the messages.
    os.dup2(2, 1)

    def read(size: int) -> bytes:
        data = source.read(size)
        if len(data) < size:
            sys.exit(0)
        return data

    preparation = Preparation(unframed(read))
    while True:
        wanted = unframed(read)
        for outcome in preparation.prepare(wanted.rel_path, wanted.known_hash):
            sink.write(framed(outcome))
        sink.flush()


if __name__ == "__main__":
    main()
