"""The vector index: embeddings by chunk id, in memory or mapped from disk, searchable while it grows."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

# Loaded before usearch on purpose: after usearch alone, onnxruntime crashes the process when it is loaded.
import re2  # noqa: F401  # pyright: ignore[reportMissingTypeStubs, reportUnusedImport] the package has no types

from armarium.foundation.files.beneath import closed_after
from armarium.foundation.files.state_files import make_way, open_regular
from armarium.retrieval.errors import DamagedIndex
from armarium.retrieval.search.fusion import Ranking, empty_ranking

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray
    from usearch.index import Index

    Ids = NDArray[numpy.int64]
    Vectors = NDArray[numpy.float32]
    Alive = Callable[[Ids], NDArray[numpy.bool_]]
    """Returns for each id whether the chunk still exists."""

# Below this size, an exact scan takes about as long as embedding the query. At 100,000 it would dominate the search,
# and the graph has a recall of 0.996 (benchmarks/corpus_queries.py).
SCAN_BELOW: Final = 50_000
# With these parameters, recall@10 is 0.985 on 100,000 vectors with many near-duplicates; with half the connections it
# is 0.92.
_CONNECTIVITY: Final = 32
_EXPANSION_ADD: Final = 128
_EXPANSION_SEARCH: Final = 512
# A larger graph needs more candidates for the same recall: on 500,000 vectors, 512 candidates reach a recall@10 of
# 0.935 and 1,536 reach 0.968, for 13 ms of CPU instead of 5.
_VECTORS_PER_CANDIDATE: Final = 320

# Reading a vector by id costs as much as scanning ten.
_SCAN_SPEEDUP: Final = 10
_MAX_READ_BY_ID: Final = 20_000
# A search waits for at most this many additions, about 10 ms.
_ADD_BATCH: Final = 32


class VectorIndex:
    """Unit vectors by chunk id, stored as float16. Vectors are never removed: callers filter deleted chunks."""

    def __init__(self, dimensions: int, *, scan_below: int = SCAN_BELOW) -> None:
        self.dimensions = dimensions
        self._scan_below = scan_below
        self._lock = _SharedLock()
        self._index = _empty(dimensions)
        self._mapped: mmap.mmap | None = None
        self._mapped_from: Path | None = None

    @classmethod
    def load(
        cls,
        path: Path,
        dimensions: int,
        *,
        is_sound: Callable[[FileIO], bool] = lambda file: True,
        scan_below: int = SCAN_BELOW,
    ) -> VectorIndex:
        """The index saved at `path`, memory-mapped until the first addition. Empty when there is no file.

        Raises `DamagedIndex` when the file is not a complete index of vectors with these dimensions. The library does
        not validate files and crashes on damaged ones: `is_sound` checks the file that is then mapped.
        """
        loaded = cls(dimensions, scan_below=scan_below)
        try:
            with open_regular(path) as file:
                if not is_sound(file):
                    raise DamagedIndex("a vector index differs from the saved one")
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            return loaded
        except (OSError, ValueError) as error:
            raise DamagedIndex("a vector index cannot be read", private={"error": str(error)}) from error
        loaded._index = _restored(mapped, dimensions, view=True)
        loaded._mapped, loaded._mapped_from = mapped, path
        return loaded

    def __len__(self) -> int:
        return len(self._index)

    def contains(self, ids: Ids) -> NDArray[numpy.bool_]:
        import numpy

        with self._lock.shared():
            found: Any = self._index.contains(ids.astype("uint64"))
        return numpy.asarray(found, numpy.bool_)

    def add(self, ids: Ids, vectors: Vectors) -> None:
        """Add unit vectors. Ids that have a vector already keep it."""
        if vectors.ndim != 2 or vectors.shape != (len(ids), self.dimensions):
            raise ValueError(f"{len(ids)} vectors of {self.dimensions} numbers expected, not {vectors.shape}")
        new = ~self.contains(ids)
        keys, rows = ids[new].astype("uint64"), vectors[new]
        for start in range(0, len(keys), _ADD_BATCH):
            with self._lock.exclusive():
                if self._mapped is not None:
                    # A mapped index cannot grow. The library holds no reference to the mapping: copy, then release it.
                    self._index = _restored(self._mapped, self.dimensions, view=False)
                    self._mapped = self._mapped_from = None
                self._index.add(keys[start : start + _ADD_BATCH], rows[start : start + _ADD_BATCH], threads=1)

    def save(self, path: Path, about_to_replace: Callable[[Path], None] = lambda beside: None) -> None:
        """Write the index atomically. `about_to_replace` is called with the complete new file before it is renamed."""
        with self._lock.shared():
            if self._mapped_from == path and path.exists():
                return
            beside = path.with_name(f".{path.name}.new")
            try:
                self._index.save(os.fspath(beside))  # pyright: ignore[reportUnknownMemberType] its paths are untyped
                _flush_to_disk(beside)
                about_to_replace(beside)
                make_way(path)
                beside.replace(path)
            finally:
                beside.unlink(missing_ok=True)
        with suppress(OSError):  # Not every file system supports fsync on directories.
            _flush_to_disk(path.parent)

    def search(
        self, vector: Vectors, k: int, *, among: Ids | None = None, alive: Alive | None = None, oversampling: int = 5
    ) -> Ranking:
        """The `k` nearest chunks with their cosines, optionally of `among` only, without those that are not `alive`."""
        import numpy

        with self._lock.shared():
            size = len(self._index)
            if not size or (among is not None and not len(among)):
                return empty_ranking()
            if among is None:
                return self._nearest(vector, k, alive, oversampling)
            if alive is not None:
                among = among[alive(among)]
            if len(among) <= min(size // _SCAN_SPEEDUP + k, _MAX_READ_BY_ID):
                return self._nearest_of(vector, k, among)
            members = numpy.sort(among)
            return self._nearest(vector, k, lambda ids: _found_in(members, ids), oversampling)

    def _nearest(self, vector: Vectors, k: int, alive: Alive | None, oversampling: int) -> Ranking:
        import numpy

        size = len(self._index)
        scan = size < self._scan_below
        wanted = min(size, k if alive is None else k * oversampling)
        self._index.expansion_search = max(_EXPANSION_SEARCH, size // _VECTORS_PER_CANDIDATE)
        while True:
            # For that many results, an exact scan is faster than the graph.
            matches = self._index.search(vector, wanted, exact=scan or wanted * _SCAN_SPEEDUP > size, threads=1)
            ids = matches.keys.astype(numpy.int64)
            scores: NDArray[numpy.float32] = (1.0 - matches.distances).astype(numpy.float32)
            if alive is not None:
                kept = alive(ids)
                ids, scores = ids[kept], scores[kept]
            if len(ids) >= k or wanted >= size:
                return Ranking(ids[:k], scores[:k])
            wanted = min(size, wanted * 4)

    def _nearest_of(self, vector: Vectors, k: int, among: Ids) -> Ranking:
        import numpy

        found: Any = self._index.get(among.astype("uint64"))  # A row per key, or None.
        if not (present := [place for place, row in enumerate(found) if row is not None]):
            return empty_ranking()
        rows = numpy.stack([found[place] for place in present]).astype(numpy.float32)
        scores = rows @ vector.astype(numpy.float32)
        best = numpy.argsort(-scores, kind="stable")[:k]
        return Ranking(among[numpy.array(present)][best], scores[best])


class _SharedLock:
    """A readers-writer lock. Additions move memory that searches read, so they need exclusive access."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._changed = threading.Condition()
        self._readers = 0

    @contextmanager
    def shared(self) -> Generator[None]:
        # A writer holds the turn while it waits for readers, so that new readers cannot starve it.
        with self._turn, self._changed:
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Generator[None]:
        with self._turn, self._changed:
            self._changed.wait_for(lambda: not self._readers)
            yield


def _empty(dimensions: int) -> Index:
    from usearch.index import Index

    return Index(
        ndim=dimensions,
        metric="ip",
        dtype="f16",
        connectivity=_CONNECTIVITY,
        expansion_add=_EXPANSION_ADD,
        expansion_search=_EXPANSION_SEARCH,
    )


def _restored(saved: mmap.mmap, dimensions: int, *, view: bool) -> Index:
    from usearch.compiled import MetricKind, ScalarKind
    from usearch.index import Index

    try:
        index: Index | None = cast(Any, Index).restore(saved, view=view)
    except (RuntimeError, ValueError, OSError) as error:
        raise DamagedIndex("a vector index cannot be read", private={"error": str(error)}) from error
    if index is None or (index.ndim, index.dtype, index.metric_kind) != (dimensions, ScalarKind.F16, MetricKind.IP):
        raise DamagedIndex("a vector index has other dimensions than the embedder")
    index.expansion_add, index.expansion_search = _EXPANSION_ADD, _EXPANSION_SEARCH  # Not stored in the file.
    return index


def _found_in(members: Ids, ids: Ids) -> NDArray[numpy.bool_]:
    """`numpy.isin` for sorted members, without sorting them at every call."""
    import numpy

    places = numpy.searchsorted(members, ids)
    places[places == len(members)] = 0
    return members[places] == ids


def _flush_to_disk(path: Path) -> None:
    with closed_after(os.open(path, os.O_RDONLY)) as descriptor:
        os.fsync(descriptor)
