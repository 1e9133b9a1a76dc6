"""Wakes workers when there are new jobs: those of this process at once, those of others by a notice of the database."""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Callable
from typing import Any, Protocol, cast

import anyio
import asyncpg  # pyright: ignore[reportMissingTypeStubs] it has none

from armarium.capabilities.store.database.pool import CONNECTION_ERRORS, Connection
from armarium.capabilities.store.database.transactions import StoreDatabase

CHANNEL = "mcp_file_index_jobs"
LISTENER = "armarium wake_up"
"""The name under which the database knows the listening connection."""

_BETWEEN_NOTICES_S = 0.02
_NOTICE_PATIENCE_S = 5.0
_STILL_THERE_S = 30.0
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 5.0

_log = logging.getLogger(__name__)


class _Listening(Connection, Protocol):
    async def add_listener(self, channel: str, callback: Callable[..., Any]) -> None:
        """Hear what is notified."""
        ...

    def add_termination_listener(self, callback: Callable[..., Any]) -> None: ...


class WakeUp:
    """Wakes whoever waits for it in this process."""

    def __init__(self) -> None:
        self._next_ring = anyio.Event()

    def wake(self) -> None:
        """There may be something to do."""
        rung, self._next_ring = self._next_ring, anyio.Event()
        rung.set()

    def next_wake_up(self) -> anyio.Event:
        """Set at the next ring. To miss none, take it before looking for jobs and wait for it afterwards."""
        return self._next_ring


class SharedWakeUp(WakeUp):
    """Rung after every committed change. A lost notice costs little: workers also look by themselves.

    The notice is sent after the commit and not within it: in a transaction NOTIFY makes commits take turns.
    """

    def __init__(self, database: StoreDatabase, dsn: str) -> None:
        super().__init__()
        self._database = database
        self._dsn = dsn
        self._own_name = secrets.token_hex(8)
        self._unsent = anyio.Event()

    def wake_all(self) -> None:
        """There are new jobs. Costs the caller nothing: the notice to others is sent by `notify_others`."""
        self.wake()
        self._unsent.set()

    async def notify_others(self) -> None:
        """Send a notice for rings, one for all that come close together; until cancelled."""
        while True:
            await self._unsent.wait()
            self._unsent = anyio.Event()
            try:
                with anyio.fail_after(_NOTICE_PATIENCE_S):
                    async with self._database.connection() as connection:
                        # One message, which also a pooler passes on as it is.
                        await connection.execute(f"NOTIFY {CHANNEL}, '{self._own_name}'")
            except (*CONNECTION_ERRORS, asyncpg.PostgresError) as error:
                _log.warning("other workers could not be told of new jobs", extra={"error": type(error).__name__})
            await anyio.sleep(_BETWEEN_NOTICES_S)

    async def listen(self) -> None:
        """Hear the notices of other processes on a connection of its own, made anew when it breaks; until cancelled.
        Behind a pooler no notice can be heard: workers then look by themselves."""
        if not self._database.supports_listen:
            _log.info("the database is behind a pooler: jobs of other servers are looked for, not heard of")
            return
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                connection = await self._connected()
            except (*CONNECTION_ERRORS, asyncpg.PostgresError) as error:
                _log.warning("not hearing of new jobs", extra={"error": type(error).__name__})
                await anyio.sleep(wait_s * random.uniform(0.5, 1.0))  # noqa: S311 only spreads the load
                wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
                continue
            wait_s = _FIRST_WAIT_S
            try:
                # Whatever was told while nobody listened is made up for.
                self.wake()
                await _until_broken(connection)
            finally:
                connection.terminate()

    async def _connected(self) -> _Listening:
        connection = cast(
            _Listening,
            await cast(Any, asyncpg).connect(
                self._dsn, timeout=_NOTICE_PATIENCE_S, server_settings={"application_name": LISTENER}
            ),
        )
        try:
            await connection.add_listener(CHANNEL, self._heard)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _heard(self, _connection: object, _pid: int, _channel: str, ringer: str) -> None:
        if ringer != self._own_name:
            self.wake()


async def _until_broken(connection: _Listening) -> None:
    broken = anyio.Event()

    def hung_up(_connection: object) -> None:
        broken.set()

    connection.add_termination_listener(hung_up)
    while not broken.is_set() and not connection.is_closed():
        with anyio.move_on_after(_STILL_THERE_S):
            await broken.wait()
            return
        # A network that swallows everything tells nobody that the other side is gone.
        try:
            with anyio.fail_after(_NOTICE_PATIENCE_S):
                await connection.execute("SELECT 1")
        except (*CONNECTION_ERRORS, asyncpg.PostgresError):
            return
