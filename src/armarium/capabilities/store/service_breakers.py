"""Leaves a service alone for a caller for whom it keeps failing, and has one call try it again after a while."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio

from armarium.foundation.breaker import Breaker

_FAILURES = 3
_LEFT_ALONE_S = 30.0
_CALLERS_REMEMBERED = 10_000


@dataclass(slots=True)
class _Record:
    breaker: Breaker
    in_trial: bool = False


@dataclass(slots=True)
class Attempt:
    """One try of a service."""

    admitted: bool
    """Whether the service is to be asked at all."""
    failed: bool = False
    """To be set when it did not answer, or not in time."""


class ServiceBreakers:
    """Counts failures in a row, caller by caller: a service is asked with the caller's own key and about the caller's
    own texts, so what fails for one may work for others."""

    def __init__(
        self, failures: int = _FAILURES, left_alone_s: float = _LEFT_ALONE_S, now: Callable[[], float] | None = None
    ) -> None:
        self._failures = failures
        self._left_alone_s = left_alone_s
        self._now = now or anyio.current_time
        self._records: OrderedDict[str, _Record] = OrderedDict()
        """Of callers with failures; the latest last."""

    @contextmanager
    def attempt(self, tenant: str) -> Generator[Attempt]:
        """Ask a service within the block if the attempt is admitted. What raises or is cancelled there counts as it is
        marked."""
        record = self._records.get(tenant)
        trial = False
        if record is not None and not record.breaker.admits():
            trial = record.breaker.state == "half_open" and not record.in_trial
            if not trial:
                yield Attempt(admitted=False)
                return
            record.in_trial = True
        attempt = Attempt(admitted=True)
        try:
            yield attempt
        finally:
            if trial and record is not None:
                record.in_trial = False
            self._note(tenant, attempt, trial=trial)

    def _note(self, tenant: str, attempt: Attempt, *, trial: bool) -> None:
        record = self._records.get(tenant)
        if not attempt.failed:
            # A call that began before the break and is answered after it ends it: the service works again.
            self._records.pop(tenant, None)
            return
        if record is None:
            record = self._records[tenant] = _Record(Breaker(self._failures, self._left_alone_s, self._now))
        self._records.move_to_end(tenant)
        if trial:
            record.breaker.tried(well=False)
        else:
            record.breaker.failed()
        if len(self._records) > _CALLERS_REMEMBERED:
            self._records.popitem(last=False)
