"""The index of meanings: vectors by chunk id, in memory or mapped from disk, searched while it grows."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

# Loaded before usearch on purpose: after usearch alone, onnxruntime crashes the process when it is loaded.
import re2  # noqa: F401  # pyright: ignore[reportMissingTypeStubs, reportUnusedImport] the package has no types

from armarium.foundation.files.state_files import make_way, open_regular
from armarium.retrieval.errors import TornIndex

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray
    from usearch.index import Index

    Ids = NDArray[numpy.int64]
    Vectors = NDArray[numpy.float32]
    Alive = Callable[[Ids], NDArray[numpy.bool_]]
    """Says of each id whether it may be answered."""

# A scan misses nothing, and up to here takes about as long as embedding the query. At 100,000 it would be most of what
# a search costs, and the graph finds 0.996 of the same (benchmarks/corpus_queries.py).
SCAN_BELOW: Final = 50_000
# Of 100,000 vectors with many near-duplicates among them, so connected and searched, the graph finds 0.985 of the ten
# nearest; with half the connections 0.92.
_CONNECTIVITY: Final = 32
_EXPANSION_ADD: Final = 128
_EXPANSION_SEARCH: Final = 512
# A larger graph has to be searched more widely for the same: of 500,000 vectors 512 candidates find 0.935 of the ten
# nearest, 1,536 find 0.968 and take 13 ms of CPU instead of 5.
_VECTORS_PER_CANDIDATE: Final = 320

# Reading vectors one by one costs as much as scanning ten times as many where they lie.
_NARROW_SHARE: Final = 10
_NARROW_AT_MOST: Final = 20_000
# A search waits for no more than so many additions, about 10 ms.
_ADDED_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True)
class VectorHits:
    """What lies nearest, nearest first; scores are cosines."""

    ids: Ids
    scores: NDArray[numpy.float32]


class VectorIndex:
    """Unit vectors by chunk id, kept with 16 bits a number. Only ever grows: callers leave out what is gone."""

    def __init__(self, dimensions: int, *, scan_below: int = SCAN_BELOW) -> None:
        self._dimensions = dimensions
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
        """The index saved at `path`, mapped into memory until something is added; an empty one when there is none.

        Raises `TornIndex` when the file is not a whole index of such vectors. The library trusts what it loads, and
        crashes when it should not have: `is_sound` is asked first, about the very file that is mapped then.
        """
        loaded = cls(dimensions, scan_below=scan_below)
        try:
            with open_regular(path) as file:
                if not is_sound(file):
                    raise TornIndex("a vector index is not the one that was saved")
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            return loaded
        except (OSError, ValueError) as error:
            raise TornIndex("a vector index cannot be read", private={"error": str(error)}) from error
        loaded._index = _restored(mapped, dimensions, view=True)
        loaded._mapped, loaded._mapped_from = mapped, path
        return loaded

    def __len__(self) -> int:
        return len(self._index)

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        return self._dimensions

    def contains(self, ids: Ids) -> NDArray[numpy.bool_]:
        """Which of these are in the index."""
        import numpy

        with self._lock.shared():
            found: Any = self._index.contains(_keys(ids))
        return numpy.asarray(found, numpy.bool_)

    def add(self, ids: Ids, vectors: Vectors) -> None:
        """Take in vectors of length 1. Ids that are known already keep the vector they have."""
        if vectors.ndim != 2 or vectors.shape != (len(ids), self._dimensions):
            raise ValueError(f"{len(ids)} vectors of {self._dimensions} numbers expected, not {vectors.shape}")
        new = ~self.contains(ids)
        keys, rows = _keys(ids[new]), vectors[new]
        for start in range(0, len(keys), _ADDED_AT_ONCE):
            with self._lock.exclusive():
                self._become_writable()
                self._index.add(keys[start : start + _ADDED_AT_ONCE], rows[start : start + _ADDED_AT_ONCE], threads=1)

    def save(self, path: Path, about_to_replace: Callable[[Path], None] = lambda beside: None) -> None:
        """Write the index so that a crash leaves either the old file or the new one.

        `about_to_replace` is given the new file, complete, before it takes its place.
        """
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
        with suppress(OSError):  # Not every file system lets a directory be flushed.
            _flush_to_disk(path.parent)

    def search(
        self, vector: Vectors, k: int, *, among: Ids | None = None, alive: Alive | None = None, oversampling: int = 5
    ) -> VectorHits:
        """The `k` nearest, of `among` only when given, without those that are not `alive`."""
        import numpy

        with self._lock.shared():
            size = len(self._index)
            if not size or (among is not None and not len(among)):
                return VectorHits(numpy.empty(0, numpy.int64), numpy.empty(0, numpy.float32))
            if among is None:
                return self._nearest(vector, k, alive, oversampling)
            if alive is not None:
                among = among[alive(among)]
            if len(among) <= min(size // _NARROW_SHARE + k, _NARROW_AT_MOST):
                return self._nearest_of(vector, k, among)
            members = numpy.sort(among)
            return self._nearest(vector, k, lambda ids: _found_in(members, ids), oversampling)

    def _nearest(self, vector: Vectors, k: int, alive: Alive | None, oversampling: int) -> VectorHits:
        import numpy

        size = len(self._index)
        scan = size < self._scan_below
        wanted = min(size, k if alive is None else k * oversampling)
        self._index.expansion_search = max(_EXPANSION_SEARCH, size // _VECTORS_PER_CANDIDATE)
        while True:
            # Past some point the graph is asked for so much that a scan is quicker, and misses nothing.
            matches = self._index.search(vector, wanted, exact=scan or wanted * _NARROW_SHARE > size, threads=1)
            ids = matches.keys.astype(numpy.int64)
            scores: NDArray[numpy.float32] = (1.0 - matches.distances).astype(numpy.float32)
            if alive is not None:
                kept = alive(ids)
                ids, scores = ids[kept], scores[kept]
            if len(ids) >= k or wanted >= size:
                return VectorHits(ids[:k], scores[:k])
            wanted = min(size, wanted * 4)

    def _nearest_of(self, vector: Vectors, k: int, among: Ids) -> VectorHits:
        import numpy

        found: Any = self._index.get(_keys(among))  # A row for each key, or None.
        present = [place for place, row in enumerate(found) if row is not None]
        if not present:
            return VectorHits(numpy.empty(0, numpy.int64), numpy.empty(0, numpy.float32))
        rows = numpy.stack([found[place] for place in present]).astype(numpy.float32)
        scores = rows @ vector.astype(numpy.float32)
        best = numpy.argsort(-scores, kind="stable")[:k]
        return VectorHits(among[numpy.array(present)][best], scores[best])

    def _become_writable(self) -> None:
        """A mapped index cannot grow: read it into memory before the first addition."""
        if self._mapped is not None:
            # The library keeps no reference to what it has mapped: first the copy, then the end of the mapping.
            self._index = _restored(self._mapped, self._dimensions, view=False)
            self._mapped = self._mapped_from = None


class _SharedLock:
    """Many may search at once; nobody while one adds, since growing moves what they read."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._changed = threading.Condition()
        self._readers = 0

    @contextmanager
    def shared(self) -> Generator[None]:
        with self._turn:  # Whoever adds holds this while the last readers leave, so that it is not kept waiting.
            self._enter()
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    def _enter(self) -> None:
        with self._changed:
            self._readers += 1

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
        raise TornIndex("a vector index cannot be read", private={"error": str(error)}) from error
    if index is None or (index.ndim, index.dtype, index.metric_kind) != (dimensions, ScalarKind.F16, MetricKind.IP):
        raise TornIndex("a vector index is of other vectors than the embedder's")
    index.expansion_add, index.expansion_search = _EXPANSION_ADD, _EXPANSION_SEARCH  # Not kept in the file.
    return index


def _keys(ids: Ids) -> NDArray[numpy.uint64]:
    import numpy

    return ids.astype(numpy.uint64)


def _found_in(members: Ids, ids: Ids) -> NDArray[numpy.bool_]:
    """`numpy.isin` for members in order, which it would sort again at every call."""
    import numpy

    places = numpy.searchsorted(members, ids)
    places[places == len(members)] = 0
    return members[places] == ids


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
