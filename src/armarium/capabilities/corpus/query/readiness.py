"""Which index questions are answered from: none yet, the newest there is, or none ever."""

from __future__ import annotations

import asyncio

from armarium.capabilities.corpus.errors import CorpusError
from armarium.capabilities.corpus.query.search import Searching


class Readiness:
    """Holds questions back until there is an index to search, and sends them on to the newest."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._newest: asyncio.Future[Searching] = self._loop.create_future()

    async def searching(self) -> Searching:
        """The index to search, as soon as there is one; raises when there never will be."""
        return await asyncio.shield(self._newest)

    @property
    def answers(self) -> bool:
        """Whether there is an index to search."""
        return self._newest.done() and self._newest.exception() is None

    def answer_from(self, searching: Searching) -> None:
        """Search this index from now on."""
        self._undecided().set_result(searching)

    def wait_again(self) -> None:
        """Hold questions back: the index that was searched is worth nothing any more."""
        self._undecided()

    def give_up(self, error: CorpusError) -> None:
        """Tell everybody who asks why there is no answer."""
        newest = self._undecided()
        newest.set_exception(error)
        newest.exception()  # whoever asks is told; nobody need ask

    def _undecided(self) -> asyncio.Future[Searching]:
        if self._newest.done():
            self._newest = self._loop.create_future()
        return self._newest
