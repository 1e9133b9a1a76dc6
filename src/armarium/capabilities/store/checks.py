"""Checks of `armarium doctor` for the store: its database, and Redis."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from armarium.capabilities.store.database.inspection import DATABASE, DatabaseFacts, inspect_database
from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.capabilities.store.postgres.account import can_leave_root
from armarium.capabilities.store.postgres.embedded import Installation, address, fitting_installation, installations
from armarium.capabilities.store.postgres.home import Home, data_directory, unusable
from armarium.capabilities.store.settings import StoreSettings
from armarium.capability import CheckResult, Facilities

_TIMEOUT_S = 10.0
_PACKAGES = ("asyncpg", "redis", "cryptography")

# JSON escapes take up to three times the bytes of a character (two-byte letters as \uXXXX); control characters take
# more, and are rare in text. The rest of a request is short.
_WIDEST_ESCAPES = 3
_REST_OF_A_REQUEST = 4096


def check(section: StoreSettings | None, facilities: Facilities) -> Generator[CheckResult]:
    """Check the configured database, or the requirements of an embedded one, without changing or starting anything."""
    if section is None:
        return
    if missing := [package for package in _PACKAGES if find_spec(package) is None]:
        message = f"not installed: {', '.join(missing)}"
        yield CheckResult("store packages", "fail", message, hint="pip install 'armarium[store]'")
        return
    if section.dsn is not None:
        yield from _served_elsewhere(section.dsn.get_secret_value(), section)
    else:
        yield from _started_here(Home(data_directory(section.data_dir, facilities.state_dir)), section)
    if facilities.max_body_bytes is not None:
        yield from _largest_write(section.max_payload_bytes, facilities.max_body_bytes)
    if section.redis_url is not None:
        yield _redis(section.redis_url.get_secret_value())
    elif section.needs_callers_keys:
        message = (
            "callers' keys stay in the memory of the server that received a write: only its own workers can index it"
        )
        if not section.index.workers:
            message += ", and store.index.workers is 0"
        hint = "set store.redis_url to have several servers, or `armarium store worker`"
        yield CheckResult("redis", "warn", message, hint)


def _served_elsewhere(dsn: str, section: StoreSettings) -> Generator[CheckResult]:
    from armarium.capabilities.store.database.schema import OLDEST_POSTGRES

    found = asyncio.run(inspect_database(dsn))
    if isinstance(found, CheckResult):
        yield found
        return
    facts, message = found.facts, f"PostgreSQL {found.facts['version'] // 10000}"
    if facts["version"] >= OLDEST_POSTGRES:
        yield CheckResult(DATABASE, "ok", message)
    else:
        yield CheckResult(DATABASE, "fail", f"{message} is too old", hint="the store needs PostgreSQL 15 or newer")
    if found.pooled and section.pooler == "none":
        message = "store.dsn points to a pooler, and store.pooler is none: prepared statements fail"
        yield CheckResult("store pooler", "fail", message, hint="remove store.pooler, or use the database directly")
    elif found.pooled:
        message = "sessions are shared between transactions; workers poll for jobs of other servers"
        yield CheckResult("store pooler", "ok", message)
    yield _vectors(facts)
    if facts["above_row_security"]:
        message = "the user of store.dsn bypasses row security, the second line of defence between callers"
        yield CheckResult("store role", "warn", message, hint="use a role without SUPERUSER and BYPASSRLS")
    else:
        yield CheckResult("store role", "ok", "row security applies to it")
    yield from _index(found, section)


def _vectors(facts: Mapping[str, Any]) -> CheckResult:
    if facts["vectors"]:
        return CheckResult("pgvector", "ok", str(facts["vectors"]))
    if facts["vectors_available"]:
        hint = "the first start enables it if permitted; otherwise an administrator runs: CREATE EXTENSION vector"
        return CheckResult("pgvector", "warn", "installed, and not yet enabled", hint=hint)
    return CheckResult("pgvector", "fail", "missing", hint="install pgvector 0.7 or newer on the database server")


def _index(found: DatabaseFacts, section: StoreSettings) -> Generator[CheckResult]:
    """Whether the schema and the vectors match the settings."""
    if not found.applied and (foreign := sorted(name for name, is_ours in found.adoptable.items() if not is_ours)):
        message = f"tables belong to another user: {', '.join(foreign)}"
        yield CheckResult("store schema", "fail", message, hint="let the user of store.dsn own them")
    elif not found.applied and found.adoptable:
        message = f"the next start adopts {len(found.adoptable)} tables of the contract and rebuilds their index"
        yield CheckResult("store schema", "ok", message)
    else:
        yield _schema(found.applied, found.made_for, section)
    if found.made_with is not None and section.search.enabled:
        yield _model(found.made_with, section)


def _model(made_with: str, section: StoreSettings) -> CheckResult:
    from armarium.providers.local.embedder import LocalEmbedder

    model = LocalEmbedder.model if section.embedding.provider == "local" else section.embedding.model
    if made_with == model:
        return CheckResult("store vectors", "ok", f"made with {model}")
    message = f"made with {made_with}, and the settings ask for {model}: only lexical search finds files"
    return CheckResult("store vectors", "warn", message, hint="run: armarium store reindex, or restore the settings")


def _schema(applied: frozenset[int], made_for: str | None, section: StoreSettings) -> CheckResult:
    from armarium.capabilities.store.database.schema import migrations

    known = {number for number, _, _ in migrations()}
    if unknown := applied - known:
        message = f"made by a newer Armarium (schema {max(unknown)})"
        return CheckResult("store schema", "fail", message, hint="update this server")
    wanted = section.dimensions
    if made_for not in (None, str(wanted)):
        message = f"the index holds vectors of {made_for} numbers, and the settings ask for {wanted}"
        hint = "restore the embedding settings, or run: armarium store reindex"
        return CheckResult("store schema", "fail", message, hint=hint)
    if missing := known - applied:
        return CheckResult("store schema", "ok", f"the next start applies {len(missing)} of {len(known)} migrations")
    return CheckResult("store schema", "ok", "up to date")


def _started_here(home: Home, section: StoreSettings) -> Generator[CheckResult]:
    try:
        installation = fitting_installation(list(installations()), home.data_version())
    except DatabaseUnavailable as error:
        yield CheckResult(DATABASE, "fail", error.message, error.hint)
        return
    yield CheckResult(DATABASE, "ok", f"PostgreSQL {installation.major}, embedded, started when needed")
    directory = _directory(home)
    yield directory
    if os.geteuid() == 0 and directory.state != "fail":
        yield _without_root(home, installation)
    if (socket := home.open_socket()) is not None:
        # A server that is stopping or was killed does not answer, which is not a problem.
        found = asyncio.run(inspect_database(address(socket)))
        if isinstance(found, DatabaseFacts):
            yield from _index(found, section)


def _largest_write(payload_bytes: int, body_bytes: int) -> Generator[CheckResult]:
    needed = payload_bytes * _WIDEST_ESCAPES + _REST_OF_A_REQUEST
    if needed <= body_bytes:
        return
    never = payload_bytes + _REST_OF_A_REQUEST > body_bytes
    yield CheckResult(
        "store writes",
        "warn",
        f"a write of store.max_payload_bytes ({payload_bytes}) {'does' if never else 'may'} not fit into a request of "
        f"server.max_body_bytes ({body_bytes}), with what JSON escapes in it",
        hint=f"set server.max_body_bytes to {needed} or more, or store.max_payload_bytes to less",
    )


def _directory(home: Home) -> CheckResult:
    subject = "store directory"
    try:
        if home.root.exists():
            home.check()
        elif not os.access(nearest := _nearest(home.root), os.W_OK | os.X_OK):
            hint = "set store.data_dir to one that can"
            return CheckResult(subject, "fail", f"{nearest} cannot be written", hint)
    except (DatabaseUnavailable, OSError) as error:
        failure = error if isinstance(error, DatabaseUnavailable) else unusable(error)
        return CheckResult(subject, "fail", failure.message, failure.hint)
    return CheckResult(subject, "ok", str(home.root))


def _without_root(home: Home, installation: Installation) -> CheckResult:
    if can_leave_root([_nearest(home.root)], installation.binaries):
        return CheckResult("store account", "ok", "PostgreSQL runs without the rights of root")
    return CheckResult(
        "store account",
        "fail",
        "PostgreSQL does not run as root, and nobody else here can reach its programs and its directory",
        hint="run the server as an ordinary user, or name a database in store.dsn",
    )


def _nearest(path: Path) -> Path:
    """The path, or its nearest existing parent directory."""
    return next(each for each in (path, *path.parents) if each.exists())


def _redis(url: str) -> CheckResult:
    import redis

    try:
        with cast(Any, redis.Redis).from_url(
            url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S
        ) as client:
            client.ping()
    except (redis.RedisError, OSError, ValueError) as error:
        message = f"cannot be used: {type(error).__name__}"
        return CheckResult("redis", "fail", message, hint="check store.redis_url, and that Redis runs there")
    return CheckResult("redis", "ok", "answers")
