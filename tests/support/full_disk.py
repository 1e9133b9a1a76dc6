"""Runs `dir2mcp …` on a machine whose disk is full as soon as indexing begins."""

from __future__ import annotations

import errno
import sys

from armarium.capabilities.corpus.commands.app import run
from armarium.capabilities.corpus.ingest.indexer import Indexer
from armarium.surfaces.cli.host import Host


def no_room(self: Indexer, mode: str = "incremental") -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


if __name__ == "__main__":
    Indexer._scan = no_room  # pyright: ignore[reportPrivateUsage] the only way to a full disk
    sys.exit(run(sys.argv[1:], Host()))
