"""What `armarium doctor` finds out about the store before a start: its database, and Redis."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.capabilities.store.postgres.account import can_leave_root
from armarium.capabilities.store.postgres.embedded import address
from armarium.capabilities.store.postgres.home import Home, data_directory, unusable
from armarium.capabilities.store.postgres.installation import Installation, fitting_installation, installations
from armarium.capabilities.store.settings import StoreSettings
from armarium.capability import Facilities, Finding
from armarium.foundation.sql import queries

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
_NOTED = "SELECT name, value FROM armarium_store_facts"
_SQL = queries("armarium.capabilities.store.sql", "reindex.sql")
# What a client escapes takes up to three times its bytes (two-byte letters as \uXXXX); control characters take more,
# and are rare in text. The rest of a request is short.
_WIDEST_ESCAPES = 3
_REST_OF_A_REQUEST = 4096


@dataclass(frozen=True, slots=True)
class _Found:
    """What a database says of itself."""

    facts: Mapping[str, Any]
    applied: frozenset[int] = frozenset()
    made_for: str | None = None
    """Numbers in a vector of the index."""
    made_with: str | None = None
    """The model of its vectors, if there are any."""


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
        yield from _started_here(Home(data_directory(section.data_dir, facilities.state_dir)), section)
    if facilities.max_body_bytes is not None:
        yield from _largest_write(section.max_payload_bytes, facilities.max_body_bytes)
    if section.redis_url is not None:
        yield _redis(section.redis_url.get_secret_value())
    elif section.search.enabled and section.embedding.provider != "local":
        yield _keys_in_memory(section)


async def _served_elsewhere(dsn: str, section: StoreSettings) -> list[Finding]:
    found = await _asked(dsn)
    if isinstance(found, Finding):
        return [found]
    facts = found.facts
    return [_version(facts["version"]), _vectors(facts), _role(facts), *_index(found, section)]


async def _asked(dsn: str) -> _Found | Finding:
    """What the database says, or why it says nothing."""
    import asyncpg  # pyright: ignore[reportMissingTypeStubs] it has none

    from armarium.capabilities.store.database import ALL_TENANTS

    try:
        connection = await cast(Any, asyncpg).connect(dsn, timeout=_PATIENCE_S)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        # The words of the error may repeat the address, and with it the password.
        message = f"cannot be used: {type(error).__name__}"
        return Finding(_DATABASE, "fail", message, hint="check store.dsn, and that PostgreSQL runs there")
    try:
        async with asyncio.timeout(_PATIENCE_S):
            facts = await connection.fetchrow(_FACTS)
            if not facts["migrated"]:
                return _Found(facts)
            applied = frozenset(row["number"] for row in await connection.fetch(_APPLIED))
            noted = dict(await connection.fetch(_NOTED))
            await connection.execute(f"SET armarium.tenant = '{ALL_TENANTS}'")
            of_a_vector = await connection.fetchval(_SQL["model_of_a_vector"], ALL_TENANTS)
            made_with = noted.get("model", of_a_vector) if of_a_vector else None
            return _Found(facts, applied, noted.get("dimensions"), made_with)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        message = f"does not answer questions: {type(error).__name__}"
        return Finding(_DATABASE, "fail", message, hint="let the user of store.dsn own its database")
    finally:
        connection.terminate()


def _version(version: int) -> Finding:
    from armarium.capabilities.store.migrate import OLDEST_POSTGRES

    message = f"PostgreSQL {version // 10000}"
    if version >= OLDEST_POSTGRES:
        return Finding(_DATABASE, "ok", message)
    return Finding(_DATABASE, "fail", f"{message} is too old", hint="the store needs PostgreSQL 15 or newer")


def _vectors(facts: Mapping[str, Any]) -> Finding:
    if facts["vectors"]:
        return Finding("pgvector", "ok", str(facts["vectors"]))
    if facts["vectors_available"]:
        hint = "the first start enables it if it may; otherwise an administrator runs: CREATE EXTENSION vector"
        return Finding("pgvector", "warn", "installed, and not yet enabled", hint=hint)
    return Finding("pgvector", "fail", "missing", hint="install pgvector 0.7 or newer on the database server")


def _role(facts: Mapping[str, Any]) -> Finding:
    if facts["above_row_security"]:
        message = "the user of store.dsn stands above row security, the second wall between callers"
        return Finding("store role", "warn", message, hint="use one that is no superuser and has no BYPASSRLS")
    return Finding("store role", "ok", "row security holds for it")


def _index(found: _Found, section: StoreSettings) -> Generator[Finding]:
    """Whether schema and vectors are those that the settings need."""
    yield _schema(found.applied, found.made_for, section)
    if found.made_with is not None and section.search.enabled:
        yield _model(found.made_with, section)


def _model(made_with: str, section: StoreSettings) -> Finding:
    from armarium.capabilities.store.models import model_name

    if made_with == (model := model_name(section.embedding)):
        return Finding("store vectors", "ok", f"made with {model}")
    message = f"made with {made_with}, and the settings ask for {model}: files are found by their words alone"
    return Finding("store vectors", "warn", message, hint="run: armarium store reindex, or put the settings back")


def _schema(applied: frozenset[int], made_for: str | None, section: StoreSettings) -> Finding:
    from armarium.capabilities.store.migrate import migrations

    known = {number for number, _, _ in migrations()}
    if unknown := applied - known:
        message = f"made by a newer Armarium (schema {max(unknown)})"
        return Finding("store schema", "fail", message, hint="update this server")
    wanted = section.dimensions
    if made_for not in (None, str(wanted)):
        message = f"the index holds vectors of {made_for} numbers, and the settings ask for {wanted}"
        hint = "put the embedding settings back, or run: armarium store reindex"
        return Finding("store schema", "fail", message, hint=hint)
    if missing := known - applied:
        return Finding("store schema", "ok", f"the next start applies {len(missing)} of {len(known)} migrations")
    return Finding("store schema", "ok", "up to date")


def _started_here(home: Home, section: StoreSettings) -> Generator[Finding]:
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
    if (socket := home.open_socket()) is not None:
        # Only a server that runs is asked. One that is just stopping, or was killed, does not answer: nothing is wrong.
        found = asyncio.run(_asked(address(socket)))
        if isinstance(found, _Found):
            yield from _index(found, section)


def _largest_write(payload_bytes: int, body_bytes: int) -> Generator[Finding]:
    needed = payload_bytes * _WIDEST_ESCAPES + _REST_OF_A_REQUEST
    if needed <= body_bytes:
        return
    never = payload_bytes + _REST_OF_A_REQUEST > body_bytes
    yield Finding(
        "store writes",
        "warn",
        f"a write of store.max_payload_bytes ({payload_bytes}) {'does' if never else 'may'} not fit into a request of "
        f"server.max_body_bytes ({body_bytes}), with what JSON escapes in it",
        hint=f"set server.max_body_bytes to {needed} or more, or store.max_payload_bytes to less",
    )


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
