"""A migrated database for the tests of the store, and a tenant of its own for each."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Iterator

import pytest

from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.schema import migrate
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.settings import LOCAL_DIMENSIONS
from support.postgres import running_postgres


@pytest.fixture(scope="session")
def store_dsn() -> Iterator[str]:
    """The address of a migrated PostgreSQL, as a role that is no superuser."""
    with running_postgres() as dsn:
        asyncio.run(_migrated(dsn))
        yield dsn


async def _migrated(dsn: str) -> None:
    pool = await connect(dsn, size=2)
    await migrate(pool, dimensions=LOCAL_DIMENSIONS)
    await pool.aclose()


@pytest.fixture
def tenant() -> str:
    """The hash of a key that nobody else uses."""
    return secrets.token_hex(32)


@pytest.fixture
async def database(store_dsn: str) -> AsyncGenerator[StoreDatabase]:
    """An open database that waits half a second for locks."""
    opened = StoreDatabase(await connect(store_dsn, size=8), lock_timeout_ms=500, on_lock_wait=lambda seconds: None)
    yield opened
    await opened.pool.aclose()
