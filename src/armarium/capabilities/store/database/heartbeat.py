"""Knows whether the database answers, for whoever must be told at once."""

from __future__ import annotations

import logging
import time

import anyio

from armarium.capabilities.store.database.transactions import ALL_TENANTS, RECOVERABLE_ERRORS, StoreDatabase

_EVERY_S = 2.0
_PATIENCE_S = 5.0

_log = logging.getLogger(__name__)


class Heartbeat:
    """Asks the database now and then, unless others were answered lately."""

    def __init__(self) -> None:
        self.is_up = True
        """Whether the database answered when it was last asked."""

    async def run(self, database: StoreDatabase) -> None:
        """Keep `is_up` true to the facts, until cancelled."""
        while True:
            await anyio.sleep(_EVERY_S)
            is_up = time.monotonic() - database.answered_at < _EVERY_S or await _answers(database)
            if is_up != self.is_up:
                _log.warning("the database answers again" if is_up else "the database does not answer")
            self.is_up = is_up


async def _answers(database: StoreDatabase) -> bool:
    try:
        with anyio.fail_after(_PATIENCE_S):
            await database.fetch_in_transaction(ALL_TENANTS, "SELECT 1")
    except (TimeoutError, *RECOVERABLE_ERRORS):
        return False
    return True
