"""The members of archives as documents, read in memory and within limits.

Nothing is written to disk, so the name of a member can only become a path in the corpus. A name that could not be
unpacked safely is refused there too.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from armarium.capabilities.corpus.errors import ExtractFailed, FileTooLarge, PathOutsideRoot
from armarium.capabilities.corpus.files.discover import ARCHIVE_MARK, is_storable, printable
from armarium.foundation.archives.entries import ArchiveError, Budget, RawEntry
from armarium.foundation.archives.tar import tar_entries
from armarium.foundation.archives.zip import zip_entries

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")

_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_DRIVE = re.compile(r"[A-Za-z]:")
_MAX_PATH_BYTES = 4095


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """The limits for one archive, including everything nested in it."""

    max_members: int = 10_000
    max_member_bytes: int = 20 * 1024 * 1024
    max_total_bytes: int = 512 * 1024 * 1024
    max_ratio: float = 200.0
    """Unpacked bytes per byte of the archive. Text rarely exceeds 30, a zip bomb has 1,000 or more."""
    ratio_free_bytes: int = 16 * 1024 * 1024
    """The ratio does not apply below this size: a small archive of empty tables is harmless."""
    max_depth: int = 3
    """Levels of nested archives, including the outermost."""

    def budget(self, archive_bytes: int) -> Budget:
        for_its_size = max(self.ratio_free_bytes, int(self.max_ratio * archive_bytes))
        return Budget(self.max_members, min(self.max_total_bytes, for_its_size))


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive."""

    path: str
    """The path inside the outermost archive: `inner/name.md`, or `inner.zip!/name.md` in a nested archive."""
    size_bytes: int
    mtime_unix: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SkippedMember:
    """An entry that was skipped, and why."""

    shown_path: str
    """Printable, but not a path that can be opened."""
    code: str
    reason: str
    size_bytes: int = 0
    """The declared size."""


def is_archive(name: str) -> bool:
    """Whether the name is that of an archive. Office documents are zip files too, but count as documents."""
    return name.lower().endswith(ARCHIVE_SUFFIXES)


def members(
    source: bytes, limits: ArchiveLimits, *, deep: bool = True, wanted: Callable[[str], bool] = lambda path: True
) -> Iterator[Member | SkippedMember]:
    """The members and the skipped entries, in archive order. With `deep`, nested archives are opened too, up to
    `max_depth`. `wanted` is called with each path before its content is read; paths of nested archives end in `!/`.
    Unwanted members are skipped silently. Raises `ExtractFailed` where the archive cannot be read further: truncated,
    damaged, or over a limit. Members before that point are valid."""
    reader = _ArchiveReader(limits, deep, wanted, limits.budget(len(source)))
    try:
        yield from reader.members(io.BytesIO(source), "", 1)
    except ArchiveError as error:
        raise ExtractFailed(str(error)) from error


@dataclass(frozen=True, slots=True)
class _ArchiveReader:
    """Reads one archive and those nested in it."""

    limits: ArchiveLimits
    deep: bool
    wanted: Callable[[str], bool]
    budget: Budget

    def members(self, file: BinaryIO, prefix: str, depth: int) -> Iterator[Member | SkippedMember]:
        seen: set[str] = set()
        is_zip = file.read(4) in _ZIP_MAGIC
        file.seek(0)
        for entry in (
            zip_entries(file, self.budget, self.limits.max_members) if is_zip else tar_entries(file, self.budget)
        ):
            self.budget.spend_member()
            if entry.is_directory:
                continue
            shown = printable(prefix + entry.name[:_MAX_PATH_BYTES])
            try:
                path = prefix + _safe_path(entry.name)
                if path in seen:
                    # Not to be mistaken for the member that has the path.
                    shown += " (again)"
                    raise ExtractFailed("another member before it has the same path")
                seen.add(path)
                yield from self._handed_on(entry, path, depth)
            except (ExtractFailed, FileTooLarge, PathOutsideRoot) as error:
                yield SkippedMember(shown, error.code, error.message, entry.size_bytes)
            except ArchiveError as error:
                if self.budget.exhausted:
                    raise
                yield SkippedMember(shown, ExtractFailed.code, str(error), entry.size_bytes)

    def _handed_on(self, entry: RawEntry, path: str, depth: int) -> Iterator[Member | SkippedMember]:
        nested = is_archive(path)
        if not self.wanted(f"{path}{ARCHIVE_MARK}/" if nested else path):
            return
        if entry.problem is not None:
            raise ExtractFailed(entry.problem)
        if entry.size_bytes > self.limits.max_member_bytes:
            raise FileTooLarge(f"larger than the {self.limits.max_member_bytes} bytes a member may have")
        if not nested:
            yield Member(path, entry.size_bytes, entry.mtime_unix, entry.read())
        elif not self.deep:
            raise ExtractFailed("an archive in an archive, which the settings leave closed")
        elif depth >= self.limits.max_depth:
            raise ExtractFailed(f"archives are nested deeper than {self.limits.max_depth}")
        else:
            yield from self.members(io.BytesIO(entry.read()), f"{path}{ARCHIVE_MARK}/", depth + 1)


def _safe_path(name: str) -> str:
    """The path for a member's name. Raises for names that would leave the archive when unpacked."""
    if not name or not is_storable(name) or len(name.encode()) > _MAX_PATH_BYTES:
        raise ExtractFailed("the name is empty, too long, not valid UTF-8 or holds control characters")
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "\\" in name or _DRIVE.match(name):
        raise PathOutsideRoot("the name leads out of the archive")
    kept = [part for part in parts if part not in ("", ".")]
    if not kept:
        raise ExtractFailed("the name is empty")
    if any(part.endswith(ARCHIVE_MARK) and is_archive(part[:-1]) for part in kept):
        raise ExtractFailed("the name is one of a member of a nested archive")
    return "/".join(kept)
