"""The worker process that prepares files: their names come on standard input, the outcomes go to standard output."""

from __future__ import annotations

import os
import resource
import sys

from armarium.capabilities.corpus.ingest.frames import READY, framed, unframed
from armarium.capabilities.corpus.ingest.prepare import Preparation

_MEMORY_BYTES = 4 * 1024**3
_POLITENESS = 5


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
    # Whoever hears this knows that what goes wrong from here on is the fault of a file.
    sink.write(framed(READY))
    sink.flush()
    while True:
        wanted = unframed(read)
        for outcome in preparation.prepare(wanted.rel_path, wanted.known_hash):
            sink.write(framed(outcome))
        sink.flush()


if __name__ == "__main__":
    main()
