"""Health of the database, checked periodically for the readiness probe."""

from __future__ import annotations

import logging
import time

import anyio

from armarium.capabilities.store.database.transactions import ALL_TENANTS, RECOVERABLE_ERRORS, StoreDatabase

_INTERVAL_S = 2.0
_TIMEOUT_S = 5.0

_log = logging.getLogger(__name__)


class Heartbeat:
    """Probes the database periodically, unless another statement succeeded recently."""

    def __init__(self) -> None:
        self.is_up = True
        """Whether the last probe succeeded."""

    async def run(self, database: StoreDatabase) -> None:
        """Keep `is_up` up to date until cancelled."""
        while True:
            await anyio.sleep(_INTERVAL_S)
            is_up = time.monotonic() - database.answered_at < _INTERVAL_S or await _answers(database)
            if is_up != self.is_up:
                _log.warning("the database answers again" if is_up else "the database does not answer")
            self.is_up = is_up


async def _answers(database: StoreDatabase) -> bool:
    try:
        with anyio.fail_after(_TIMEOUT_S):
            await database.fetch_in_transaction(ALL_TENANTS, "SELECT 1")
    except (TimeoutError, *RECOVERABLE_ERRORS):
        return False
    return True
