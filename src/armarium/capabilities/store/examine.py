"""What `armarium doctor` finds out about the store before a start: its database, and Redis."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.capabilities.store.postgres.account import can_leave_root
from armarium.capabilities.store.postgres.home import Home, data_directory, unusable
from armarium.capabilities.store.postgres.installation import Installation, fitting_installation, installations
from armarium.capabilities.store.settings import LOCAL_DIMENSIONS, StoreSettings
from armarium.capability import Facilities, Finding

_PATIENCE_S = 10.0
_DATABASE = "store database"
_PACKAGES = ("asyncpg", "redis", "cryptography")

_FACTS = """
SELECT current_setting('server_version_num')::int AS version,
       (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS vectors,
       EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector') AS vectors_available,
       (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user) AS above_row_security,
       to_regclass('armarium_store_schema') IS NOT NULL AS migrated
"""
_APPLIED = "SELECT number FROM armarium_store_schema"
_MADE_FOR = "SELECT value::int FROM armarium_store_facts WHERE name = 'dimensions'"


def examine(section: StoreSettings | None, facilities: Facilities) -> Generator[Finding]:
    """Look at the database the settings name, or at what is needed to start one; change and start nothing."""
    if section is None:
        return
    if missing := [package for package in _PACKAGES if find_spec(package) is None]:
        message = f"not installed: {', '.join(missing)}"
        yield Finding("store packages", "fail", message, hint="pip install 'armarium[store]'")
        return
    if section.dsn is not None:
        yield from asyncio.run(_served_elsewhere(section.dsn.get_secret_value(), section))
    else:
        yield from _started_here(Home(data_directory(section.data_dir, facilities.state_dir)))
    if section.redis_url is not None:
        yield _redis(section.redis_url.get_secret_value())
    elif section.search.enabled and section.embedding.provider != "local":
        yield _keys_in_memory(section)


async def _served_elsewhere(dsn: str, section: StoreSettings) -> list[Finding]:
    import asyncpg  # pyright: ignore[reportMissingTypeStubs] it has none

    try:
        connection = await cast(Any, asyncpg).connect(dsn, timeout=_PATIENCE_S)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        # The words of the error may repeat the address, and with it the password.
        message = f"cannot be used: {type(error).__name__}"
        return [Finding(_DATABASE, "fail", message, hint="check store.dsn, and that PostgreSQL runs there")]
    try:
        async with asyncio.timeout(_PATIENCE_S):
            facts = await connection.fetchrow(_FACTS)
            applied = {row["number"] for row in await connection.fetch(_APPLIED)} if facts["migrated"] else set[int]()
            made_for = await connection.fetchval(_MADE_FOR) if facts["migrated"] else None
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        message = f"does not answer questions: {type(error).__name__}"
        return [Finding(_DATABASE, "fail", message, hint="let the user of store.dsn own its database")]
    finally:
        connection.terminate()
    return [_version(facts["version"]), _vectors(facts), _role(facts), _schema(applied, made_for, section)]


def _version(version: int) -> Finding:
    from armarium.capabilities.store.migrate import OLDEST_POSTGRES

    message = f"PostgreSQL {version // 10000}"
    if version >= OLDEST_POSTGRES:
        return Finding(_DATABASE, "ok", message)
    return Finding(_DATABASE, "fail", f"{message} is too old", hint="the store needs PostgreSQL 15 or newer")


def _vectors(facts: dict[str, Any]) -> Finding:
    if facts["vectors"]:
        return Finding("pgvector", "ok", str(facts["vectors"]))
    if facts["vectors_available"]:
        hint = "the first start enables it if it may; otherwise an administrator runs: CREATE EXTENSION vector"
        return Finding("pgvector", "warn", "installed, and not yet enabled", hint=hint)
    return Finding("pgvector", "fail", "missing", hint="install pgvector 0.7 or newer on the database server")


def _role(facts: dict[str, Any]) -> Finding:
    if facts["above_row_security"]:
        message = "the user of store.dsn stands above row security, the second wall between callers"
        return Finding("store role", "warn", message, hint="use one that is no superuser and has no BYPASSRLS")
    return Finding("store role", "ok", "row security holds for it")


def _schema(applied: set[int], made_for: int | None, section: StoreSettings) -> Finding:
    from armarium.capabilities.store.migrate import migrations

    known = {number for number, _, _ in migrations()}
    if unknown := applied - known:
        message = f"made by a newer Armarium (schema {max(unknown)})"
        return Finding("store schema", "fail", message, hint="update this server")
    wanted = LOCAL_DIMENSIONS if section.embedding.provider == "local" else section.embedding.dimensions
    if made_for not in (None, wanted):
        message = f"the index holds vectors of {made_for} numbers, and the settings ask for {wanted}"
        hint = "put the embedding settings back, or run: armarium store reindex"
        return Finding("store schema", "fail", message, hint=hint)
    if missing := known - applied:
        return Finding("store schema", "ok", f"the next start applies {len(missing)} of {len(known)} migrations")
    return Finding("store schema", "ok", "up to date")


def _started_here(home: Home) -> Generator[Finding]:
    try:
        installation = fitting_installation(list(installations()), home.data_version())
    except DatabaseUnavailable as error:
        yield Finding(_DATABASE, "fail", error.message, error.hint)
        return
    yield Finding(_DATABASE, "ok", f"PostgreSQL {installation.major}, started here when it is needed")
    directory = _directory(home)
    yield directory
    if os.geteuid() == 0 and directory.state != "fail":
        yield _without_root(home, installation)


def _directory(home: Home) -> Finding:
    subject = "store directory"
    try:
        if home.root.exists():
            home.check()
        elif not os.access(nearest := _nearest(home.root), os.W_OK | os.X_OK):
            return Finding(subject, "fail", f"{nearest} cannot be written", hint="set store.data_dir to one that can")
    except OSError as error:
        failure = unusable(error)
        return Finding(subject, "fail", failure.message, failure.hint)
    except DatabaseUnavailable as error:
        return Finding(subject, "fail", error.message, error.hint)
    return Finding(subject, "ok", str(home.root))


def _without_root(home: Home, installation: Installation) -> Finding:
    if can_leave_root([_nearest(home.root)], installation.binaries):
        return Finding("store account", "ok", "PostgreSQL runs without the rights of root")
    return Finding(
        "store account",
        "fail",
        "PostgreSQL does not run as root, and nobody else here can reach its programs and its directory",
        hint="run the server as an ordinary user, or name a database in store.dsn",
    )


def _nearest(path: Path) -> Path:
    """The path, or the directory above it that exists."""
    return next(each for each in (path, *path.parents) if each.exists())


def _redis(url: str) -> Finding:
    import redis

    try:
        with cast(Any, redis.Redis).from_url(
            url, socket_timeout=_PATIENCE_S, socket_connect_timeout=_PATIENCE_S
        ) as client:
            client.ping()
    except (redis.RedisError, OSError, ValueError) as error:
        message = f"cannot be used: {type(error).__name__}"
        return Finding("redis", "fail", message, hint="check store.redis_url, and that Redis runs there")
    return Finding("redis", "ok", "answers")


def _keys_in_memory(section: StoreSettings) -> Finding:
    message = "callers' keys stay in the memory of the server that takes a write: only its own workers can index it"
    if not section.index.workers:
        message += ", and store.index.workers is 0"
    hint = "set store.redis_url to have several servers, or `armarium store worker`"
    return Finding("redis", "warn", message, hint)
