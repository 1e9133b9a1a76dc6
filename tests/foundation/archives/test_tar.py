"""The tar reader works on streams that cannot seek, and notices archives that end early."""

from __future__ import annotations

import io
import tarfile
from typing import Any, cast

import pytest

from armarium.foundation.archives.entries import ArchiveError, Budget
from armarium.foundation.archives.tar import tar_entries

FILES = {"a.md": b"first", "long/" * 40 + "b.md": b"x" * 700}


class Pipe(io.RawIOBase):
    """A stream that cannot seek and returns at most three bytes at a time, as a slow pipe does."""

    def __init__(self, content: bytes) -> None:
        self._rest = content

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        piece, self._rest = self._rest[: min(size, 3)], self._rest[min(size, 3) :]
        return piece


def tar(compression: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=cast(Any, f"w:{compression}")) as archive:
        for name, content in FILES.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return out.getvalue()


@pytest.mark.parametrize("compression", ["", "gz", "bz2", "xz"])
def test_a_stream_that_cannot_seek_is_read_to_its_end(compression: str) -> None:
    entries = tar_entries(cast(Any, Pipe(tar(compression))), Budget(), require_end=True)
    assert {entry.name: entry.read() for entry in entries} == FILES


def test_members_that_are_not_read_are_skipped_in_a_stream_that_cannot_seek() -> None:
    entries = tar_entries(cast(Any, Pipe(tar())), Budget())
    assert [entry.name for entry in entries] == list(FILES)


def test_an_archive_without_its_end_marker_is_truncated_only_where_the_marker_is_required() -> None:
    without_end = tar().rstrip(b"\0")
    without_end += bytes(-len(without_end) % 512)
    assert [entry.name for entry in tar_entries(io.BytesIO(without_end), Budget())] == list(FILES)
    with pytest.raises(ArchiveError):
        list(tar_entries(io.BytesIO(without_end), Budget(), require_end=True))


def test_an_extension_header_has_a_limit() -> None:
    with pytest.raises(ArchiveError, match="header"):
        list(tar_entries(io.BytesIO(tar()), Budget(), max_header_bytes=100))
