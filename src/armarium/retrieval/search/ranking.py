"""A list of scored chunks, as indexes return it and rank fusion merges it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Ranking:
    """Chunk ids with their scores, best first."""

    ids: NDArray[numpy.int64]
    scores: NDArray[numpy.float32]

    def __len__(self) -> int:
        return len(self.ids)


def empty_ranking() -> Ranking:
    import numpy

    return Ranking(numpy.empty(0, numpy.int64), numpy.empty(0, numpy.float32))
