"""Opens archives in memory: their members as documents, within limits that no archive can talk its way around.

Nothing is written to disk, so a member's name can only become a path of the corpus; one that could not be unpacked
safely is no path of a document either.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal

from armarium.capabilities.corpus.errors import ExtractFailed, FileTooLarge, PathOutsideRoot
from armarium.capabilities.corpus.files.paths import ARCHIVE_MARK, is_storable, printable
from armarium.foundation.archives.entries import ArchiveError, Budget, RawEntry
from armarium.foundation.archives.tar import tar_entries
from armarium.foundation.archives.zip import zip_entries

ArchiveMode = Literal["off", "shallow", "deep"]
"""`off`: archives are not opened. `shallow`: their members are documents, but archives among the members stay closed.
`deep`: those are opened too, as far down as the limits allow."""

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")

_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_DRIVE = re.compile(r"[A-Za-z]:")
_MAX_PATH_BYTES = 4095


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What opening one archive may cost, everything nested in it included."""

    max_members: int = 10_000
    max_member_bytes: int = 20 * 1024 * 1024
    max_total_bytes: int = 512 * 1024 * 1024
    max_ratio: float = 200.0
    """Unpacked bytes for each byte of the archive. Text rarely exceeds 30, a bomb has 1,000 and more."""
    ratio_free_bytes: int = 16 * 1024 * 1024
    """Up to here the ratio does not matter: a small archive of empty tables is no bomb."""
    max_depth: int = 3
    """Archives inside each other, the outermost counted."""

    def budget(self, archive_bytes: int) -> Budget:
        """What an archive of that size may unpack."""
        for_its_size = max(self.ratio_free_bytes, int(self.max_ratio * archive_bytes))
        return Budget(self.max_members, min(self.max_total_bytes, for_its_size))


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive."""

    path: str
    """Inside the outermost archive: `inner/name.md`, or `inner.zip!/name.md` for one in a nested archive."""
    size_bytes: int
    mtime_unix: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SkippedMember:
    """An entry that is not handed on, and why."""

    shown_path: str
    """Printable; not a path to open."""
    code: str
    reason: str
    size_bytes: int = 0
    """As the archive has it."""


def is_archive(name: str) -> bool:
    """Whether the name is an archive's. Office documents are zip files too, but documents first."""
    return name.lower().endswith(ARCHIVE_SUFFIXES)


def members(
    source: bytes | BinaryIO,
    limits: ArchiveLimits,
    *,
    mode: ArchiveMode = "deep",
    wanted: Callable[[str], bool] = lambda path: True,
) -> Iterator[Member | SkippedMember]:
    """The members of an archive one after the other, and what was skipped, in the order of the archive.

    `wanted` is asked for each path before anything of it is read; a nested archive's ends in `!/`. What it does not
    want is passed over in silence. `ExtractFailed` is raised where the archive cannot be read on: truncated, damaged,
    or over a limit. What came before is good.
    """
    if mode == "off":
        return
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    budget = limits.budget(file.seek(0, os.SEEK_END))
    try:
        yield from _ArchiveReader(limits, mode, wanted, budget).members(file, "", 1)
    except ArchiveError as error:
        raise ExtractFailed(str(error)) from error


@dataclass(frozen=True, slots=True)
class _ArchiveReader:
    """One archive being read, with what is nested in it."""

    limits: ArchiveLimits
    mode: ArchiveMode
    wanted: Callable[[str], bool]
    budget: Budget

    def members(self, file: BinaryIO, prefix: str, depth: int) -> Iterator[Member | SkippedMember]:
        seen: set[str] = set()
        for entry in self._entries(file):
            self.budget.spend_member()
            if entry.is_directory:
                continue
            shown = printable(prefix + entry.name[:_MAX_PATH_BYTES])
            try:
                path = prefix + _safe_path(entry.name)
                if path in seen:
                    # Not to be taken for the member that has the path.
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

    def _entries(self, file: BinaryIO) -> Iterator[RawEntry]:
        file.seek(0)
        is_zip = file.read(4) in _ZIP_MAGIC
        return zip_entries(file, self.budget, self.limits.max_members) if is_zip else tar_entries(file, self.budget)

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
        elif self.mode == "shallow":
            raise ExtractFailed("an archive in an archive, which the settings leave closed")
        elif depth >= self.limits.max_depth:
            raise ExtractFailed(f"archives are nested deeper than {self.limits.max_depth}")
        else:
            yield from self.members(io.BytesIO(entry.read()), f"{path}{ARCHIVE_MARK}/", depth + 1)


def _safe_path(name: str) -> str:
    """The path a member's name stands for; an error for a name that would lead out of where it is unpacked."""
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
