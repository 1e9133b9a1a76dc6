"""Files that stay open while they are sent to a client block by block."""

from __future__ import annotations

import hashlib
import os

from armarium.capabilities.sandbox.error_context import checked_path, errors_at
from armarium.capabilities.sandbox.errors import Conflict
from armarium.capabilities.sandbox.reads.file_content import pread_all
from armarium.capabilities.sandbox.reads.root_files import opened_for_reading
from armarium.capabilities.sandbox.roots import Root


class OpenFile:
    """A regular file of a root, open for reading. It is closed when the last reference is gone, because a thread that
    hangs on a dead disk may still read it."""

    def __init__(self, root: Root, path: str) -> None:
        """Raise if the caller may not read the path. Blocks, as `read` does."""
        self._fd = -1
        self._root, self._path = root, path
        with checked_path(root, path) as normal, opened_for_reading(root, normal) as (fd, status):
            self._fd = os.dup(fd)
            self._status = status
        self.path = normal
        """The normalised path."""
        self.size = status.st_size
        facts = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        # Hashed, because callers do not learn the numbers of devices.
        self.tag = hashlib.sha256(repr(facts).encode()).hexdigest()[:32]

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def read(self, offset: int, length: int) -> bytes:
        """The bytes at an offset. Raise if the file is not as it was when it was opened, unless it only grew."""
        with errors_at(self._root, self._path):
            block = pread_all(self._fd, offset, length)
            now, before = os.fstat(self._fd), self._status
            rewritten = now.st_size == before.st_size and now.st_mtime_ns != before.st_mtime_ns
            if now.st_size < before.st_size or rewritten or len(block) < length:
                raise Conflict("the file changed while it was sent", hint="ask for it again")
        return block
