"""Checksums of the index files, stored in `meta.sqlite`. A file with another checksum is not used.

The files are derived from the database, so a damaged, lost or foreign file is rebuilt. The checksum is CRC-32 with the
size: it detects damage and mix-ups. It does not protect against forgery: a process that can write these files can also
write the database.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Final

from armarium.capabilities.corpus.errors import CorpusError
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.foundation.files.state_files import open_regular
from armarium.retrieval.chunks import IndexKind

_log = logging.getLogger(__name__)

_BLOCK_BYTES: Final = 1 << 20
_META: Final = "meta.json"
_WORDS_SEAL: Final = "words_seal"
SEAL_PAUSES_S: Final = (0.05, 0.2, 0.5, 0.0)
"""Pauses between attempts to verify a file that another process may be replacing."""
_LOOK_EVERY_S: Final = 0.25
_LOOK_FOR_S: Final = 60.0


def checksum(file: FileIO) -> str:
    block = bytearray(_BLOCK_BYTES)
    size = crc = 0
    file.seek(0)
    while count := file.readinto(block):
        size += count
        crc = zlib.crc32(memoryview(block)[:count], crc)
    return f"{size}:{crc}"


def _checksum_at(path: Path) -> str | None:
    try:
        with open_regular(path) as file:
            return checksum(file)
    except OSError:
        return None


class VectorSeal:
    """The checksums that the vector file of one kind may have."""

    def __init__(self, storage: Storage, kind: IndexKind) -> None:
        self._notes = storage.notes
        self._key = f"vectors_{kind}_seal"

    @property
    def exists(self) -> bool:
        return bool(self._accepted())

    def fits(self, file: FileIO) -> bool:
        """Whether an open file was saved for this database."""
        accepted = self._accepted()
        return bool(accepted) and checksum(file) in accepted

    def accept(self, beside: Path) -> None:
        """Accept a new file that is about to replace the old one. After a crash, either of the two may be found."""
        self._put([*self._accepted()[-1:], _checksum_at(beside) or ""])

    def settle(self) -> None:
        """Accept only the new file, which has replaced the old one."""
        self._put(self._accepted()[-1:])

    def _accepted(self) -> list[str]:
        return json.loads(self._notes.get(self._key) or "[]")

    def _put(self, accepted: list[str]) -> None:
        self._notes.put_new({self._key: json.dumps(accepted)})


def lexical_files_match(storage: Storage, directory: Path) -> bool:
    """Whether the files of the lexical index are those that were committed for this database."""
    sealed: dict[str, str] = json.loads(storage.notes.get(_WORDS_SEAL) or "{}")
    return bool(sealed) and all(_checksum_at(directory / name) == expected for name, expected in sealed.items())


def has_lexical_seal(storage: Storage) -> bool:
    return bool(storage.notes.get(_WORDS_SEAL))


class LexicalSealer:
    """Records the checksums of a lexical index that is being written. The library merges its files at any time after a
    commit, so the directory is checked until it has not changed for a while."""

    def __init__(self, storage: Storage, directory: Path) -> None:
        self._storage = storage
        self._directory = directory
        self._known: dict[str, str] = {}
        self._sealed_meta: tuple[int, int] | None = None
        self._changed = threading.Condition()
        """Held while checksums are recorded; signalled by a commit and by the end."""
        self._look_until = 0.0
        self._closed = False
        self._thread = threading.Thread(target=self._look, name="corpus-seals", daemon=True)
        self._thread.start()

    def seal(self, **notes: str) -> None:
        """Record the checksums after a commit, together with `notes`."""
        with self._changed:
            self._seal(notes)
            self._look_until = time.monotonic() + _LOOK_FOR_S
            self._changed.notify()

    def close(self, *, sealing: bool) -> None:
        """Stop checking. If `sealing`, record the final checksums; the index must be closed already."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        if sealing:
            self._seal({})

    def _seal(self, notes: Mapping[str, str]) -> None:
        seal = self._checksums()
        self._storage.notes.put_new({**notes, **({_WORDS_SEAL: seal} if seal is not None else {})})

    def _checksums(self) -> str | None:
        """The checksums of all files of the index, or None if there is no index."""
        while True:
            identity = self._meta_identity()
            try:
                meta = (self._directory / _META).read_bytes()
                # The files that the library's own list of segments names.
                segments = {str(segment["segment_id"]).replace("-", "") for segment in json.loads(meta)["segments"]}
                names = [name for name in os.listdir(self._directory) if name.partition(".")[0] in segments]
            except (OSError, ValueError, KeyError, TypeError):
                return None
            # Files are written once and never changed, so each is read only once.
            found = {name: self._known.get(name) or _checksum_at(self._directory / name) for name in names}
            if identity == self._meta_identity():
                break
        self._known = {name: each for name, each in found.items() if each is not None}
        self._sealed_meta = identity
        return json.dumps({_META: f"{len(meta)}:{zlib.crc32(meta)}", **self._known})

    def _meta_identity(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._directory / _META)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def _look(self) -> None:
        with self._changed:
            while not self._closed:
                self._changed.wait(_LOOK_EVERY_S if time.monotonic() < self._look_until else None)
                if self._closed or self._meta_identity() in (self._sealed_meta, None):
                    continue
                try:
                    self._seal({})
                except (CorpusError, sqlite3.Error) as error:
                    # The next commit raises the same error. Until then the lexical index counts as unsealed.
                    self._look_until = 0.0
                    _log.warning("the checksums of the lexical index cannot be recorded", extra={"reason": str(error)})
