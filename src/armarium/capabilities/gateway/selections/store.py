"""Stores the selections of callers in a SQLite file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, TypeVar

import orjson
from anyio.to_thread import run_sync

from armarium.capabilities.gateway.arguments import Selection
from armarium.capabilities.gateway.errors import SelectionsUnavailable
from armarium.foundation import sqlite
from armarium.foundation.sql import queries

DEFAULT: Final = ""
"""In place of a session: the selection for all sessions that have none."""
_MAX_SESSIONS: Final = 200
_BUSY_TIMEOUT_S: Final = 5.0
_SQL = queries(__package__ or "")
_UNAVAILABLE: Final = "the stored selections cannot be read or written"
_HINT: Final = "try again later, or name the sources in the call"

T = TypeVar("T")


class SelectionStore:
    """The selections by caller and session. The file is created when the first one is stored."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    async def read(self, username: str, sessions: Collection[str]) -> Mapping[str, Selection]:
        """The selections of these sessions, as far as there are any."""

        def select(connection: sqlite3.Connection) -> list[tuple[str, str]]:
            return connection.execute(_SQL["read"], (username, orjson.dumps([*sessions]).decode())).fetchall()

        if self._connection is None and not self._file.exists():
            return {}
        rows = await run_sync(self._run, select)
        return {session: Selection.model_validate_json(text) for session, text in rows}

    async def write(self, username: str, session: str, selection: Selection) -> None:
        """Store a selection in place of the previous one."""
        text = selection.model_dump_json(by_alias=True, exclude_none=True)

        def insert(connection: sqlite3.Connection) -> None:
            connection.execute(_SQL["write"], (username, session, text))
            connection.execute(_SQL["remove_oldest"], (username, _MAX_SESSIONS))

        await run_sync(self._run, insert)

    async def delete(self, username: str, session: str) -> bool:
        """Delete a selection. Returns whether there was one."""

        def delete(connection: sqlite3.Connection) -> bool:
            return connection.execute(_SQL["delete"], (username, session)).rowcount > 0

        return await run_sync(self._run, delete)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _run(self, statements: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock, sqlite.unavailable(SelectionsUnavailable, _UNAVAILABLE, hint=_HINT):
            connection = self._opened()
            with sqlite.transaction(connection):
                return statements(connection)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite.connect_private(self._file, busy_timeout_s=_BUSY_TIMEOUT_S)
            try:
                connection.execute(_SQL["create_table"])
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection
