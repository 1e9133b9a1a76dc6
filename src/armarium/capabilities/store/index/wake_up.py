"""Wake-ups for workers: in this process directly, in other processes by NOTIFY."""

from __future__ import annotations

import logging
import random
import secrets

import anyio
import asyncpg  # pyright: ignore[reportMissingTypeStubs] it has none
from pydantic import SecretStr

from armarium.capabilities.store.database.pool import CONNECTION_ERRORS, Connection, open_connection
from armarium.capabilities.store.database.transactions import StoreDatabase

CHANNEL = "mcp_file_index_jobs"
LISTENER = "armarium listener"
"""The `application_name` of the listening connection."""

_NOTIFY_INTERVAL_S = 0.02
_TIMEOUT_S = 5.0
_PROBE_INTERVAL_S = 30.0
_FIRST_DELAY_S = 0.1
_MAX_DELAY_S = 5.0

_log = logging.getLogger(__name__)


class WakeUp:
    """Wakes the tasks of this process that wait for it."""

    def __init__(self) -> None:
        self._next = anyio.Event()

    def wake(self) -> None:
        current, self._next = self._next, anyio.Event()
        current.set()

    def next_wake_up(self) -> anyio.Event:
        """The event that the next wake-up sets. To miss none, get it before claiming and wait for it after."""
        return self._next


class SharedWakeUp(WakeUp):
    """Wakes the workers of all processes after a committed change. Workers also poll, so a lost one is harmless. NOTIFY
    is sent after the commit, not in the transaction, where it would serialise commits."""

    def __init__(self, database: StoreDatabase, dsn: str | SecretStr) -> None:
        super().__init__()
        self._database = database
        self._dsn = dsn
        self._sender = secrets.token_hex(8)
        self._unsent = anyio.Event()

    def wake_all(self) -> None:
        """Wake the tasks of this process now; `notify_others` wakes other processes. Never blocks."""
        self.wake()
        self._unsent.set()

    async def notify_others(self) -> None:
        """Send NOTIFY for wake-ups, one for all in a short interval, until cancelled."""
        while True:
            await self._unsent.wait()
            self._unsent = anyio.Event()
            try:
                with anyio.fail_after(_TIMEOUT_S):
                    async with self._database.pool.connection() as connection:
                        # A simple query, which poolers forward unchanged.
                        await connection.execute(f"NOTIFY {CHANNEL}, '{self._sender}'")
            except (*CONNECTION_ERRORS, asyncpg.PostgresError) as error:
                _log.warning("NOTIFY for new jobs failed", extra={"error": type(error).__name__})
            await anyio.sleep(_NOTIFY_INTERVAL_S)

    async def listen(self) -> None:
        """Receive the notifications of other processes on a dedicated connection, which is reopened when it breaks,
        until cancelled. Returns at once behind a pooler, which does not support LISTEN: workers then only poll."""
        if self._database.pool.pooled:
            _log.info("the database is behind a pooler: workers poll for jobs of other servers")
            return
        delay_s = _FIRST_DELAY_S
        while True:
            try:
                connection = await open_connection(
                    self._dsn, timeout=_TIMEOUT_S, server_settings={"application_name": LISTENER}
                )
                try:
                    await connection.add_listener(CHANNEL, self._on_notification)
                    delay_s = _FIRST_DELAY_S
                    # Notifications may have been lost while no connection listened.
                    self.wake()
                    await _until_broken(connection)
                finally:
                    connection.terminate()
            except (*CONNECTION_ERRORS, asyncpg.PostgresError) as error:
                _log.warning("LISTEN for new jobs failed", extra={"error": type(error).__name__})
                await anyio.sleep(delay_s * random.uniform(0.5, 1.0))  # noqa: S311 only spreads the load
                delay_s = min(delay_s * 2, _MAX_DELAY_S)

    def _on_notification(self, _connection: object, _pid: int, _channel: str, sender: str) -> None:
        if sender != self._sender:
            self.wake()


async def _until_broken(connection: Connection) -> None:
    broken = anyio.Event()
    connection.add_termination_listener(lambda _connection: broken.set())
    while not broken.is_set() and not connection.is_closed():
        with anyio.move_on_after(_PROBE_INTERVAL_S):
            await broken.wait()
            return
        # A probe detects a network that drops packets without closing the connection.
        try:
            with anyio.fail_after(_TIMEOUT_S):
                await connection.execute("SELECT 1")
        except (*CONNECTION_ERRORS, asyncpg.PostgresError):
            return
