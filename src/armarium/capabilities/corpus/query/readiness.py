"""Which index searches use: none yet, the newest one, or none because opening it failed."""

from __future__ import annotations

import asyncio

from armarium.capabilities.corpus.errors import CorpusError
from armarium.capabilities.corpus.query.search import Searcher


class Readiness:
    """Holds searches back until there is an index, and directs them to the newest one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._newest: asyncio.Future[Searcher] = self._loop.create_future()

    async def searcher(self) -> Searcher:
        """Wait for an index. Raises the error that `fail` was called with."""
        return await asyncio.shield(self._newest)

    @property
    def is_ready(self) -> bool:
        """Whether there is an index to search."""
        return self._newest.done() and self._newest.exception() is None

    def use(self, searcher: Searcher) -> None:
        """Direct searches to this index."""
        self._undecided().set_result(searcher)

    def hold_back(self) -> None:
        """Make searches wait: the current index must not be used any longer."""
        self._undecided()

    def fail(self, error: CorpusError) -> None:
        """Fail all searches with this error."""
        newest = self._undecided()
        newest.set_exception(error)
        newest.exception()  # retrieved here, because it is not an error if no search ever asks for it

    def _undecided(self) -> asyncio.Future[Searcher]:
        if self._newest.done():
            self._newest = self._loop.create_future()
        return self._newest
