"""A process that uses the database started here: answers each statement on its input, and leaves when that ends."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import anyio
import asyncpg
from anyio import to_thread

from armarium.capabilities.store.database.pool import CONNECTION_ERRORS
from armarium.capabilities.store.postgres.embedded import embedded_postgres

_DEADLINE_S = 60.0


async def use(data_dir: Path) -> None:
    """Report the address, then the answers."""
    async with embedded_postgres(data_dir) as dsn:
        print(json.dumps(dsn), flush=True)
        while statement := (await to_thread.run_sync(sys.stdin.readline)).strip():
            print(json.dumps(await answer(dsn, statement)), flush=True)


async def answer(dsn: str, statement: str) -> object:
    """The first value, also when the server has to come back first."""
    deadline = time.monotonic() + _DEADLINE_S
    while True:
        try:
            connection = await asyncpg.connect(dsn, timeout=_DEADLINE_S)
            try:
                return await connection.fetchval(statement)
            finally:
                connection.terminate()
        except CONNECTION_ERRORS:
            if time.monotonic() > deadline:
                raise
            await anyio.sleep(0.02)


if __name__ == "__main__":
    # A terminal's Ctrl-C reaches this process, which goes on: what matters is whom else it reaches.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    anyio.run(use, Path(sys.argv[1]))
