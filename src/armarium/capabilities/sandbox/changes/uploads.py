"""Receives a file block by block into a staged entry, and puts it at its path when it is complete."""

from __future__ import annotations

import hashlib
import os
import threading
from functools import partial

from armarium.capabilities.sandbox.changes.content import copy_content
from armarium.capabilities.sandbox.changes.edits import require_file_path
from armarium.capabilities.sandbox.changes.targets import ChangeContext, with_target
from armarium.capabilities.sandbox.changes.writes import already_exists, put, write_all
from armarium.capabilities.sandbox.error_context import checked_path, errors_at
from armarium.capabilities.sandbox.errors import FileTooLarge
from armarium.capabilities.sandbox.reads.file_content import human_size
from armarium.capabilities.sandbox.results import Written
from armarium.capabilities.sandbox.roots import Root
from armarium.capabilities.sandbox.threads.pool import expect_bytes
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.names import escape_name
from armarium.foundation.files.staged_entries import staged_file


class Upload:
    """A file that is being received. It is staged on the file system of its target, in a directory above it: the parent
    directory may not exist yet. All methods block."""

    def __init__(self, root: Root, path: str, *, exclusive: bool, max_bytes: int) -> None:
        """Raise if the caller may not write the path. With `exclusive`, the file must not exist."""
        self._root, self._path, self._exclusive, self._max_bytes = root, path, exclusive, max_bytes
        self._size, self._hasher = 0, hashlib.sha256(usedforsecurity=False)
        # A cancelled call does not wait for a thread that hangs on a dead disk, but closing must.
        self._lock = threading.Lock()
        with checked_path(root, path) as normal:
            require_file_path(path)
            root.require_writable(normal)
            resolved = root.resolved(normal)
            root.require_writable(resolved)
            if exclusive and _exists(root, resolved):
                raise already_exists(path)
            self._dir_fd = _directory_above(root, resolved)
            try:
                self._staged = staged_file(self._dir_fd, 0o600)
            except BaseException:
                os.close(self._dir_fd)
                raise

    def append(self, block: bytes) -> None:
        """Add the next bytes."""
        with self._lock, errors_at(self._root, self._path):
            require_size(self._size + len(block), self._max_bytes)
            write_all(self._staged.fd, block)
            self._size += len(block)
            self._hasher.update(block)

    def place(self, context: ChangeContext) -> tuple[str, Written]:
        """Put the file at its path, atomically. Returns the normalised path as well. It can be repeated."""
        expect_bytes(self._size)
        root, path = self._root, self._path
        with self._lock, checked_path(root, path) as normal:
            fill = partial(_copy_to, self._staged.fd, context.cancellation)
            work = partial(put, fill=fill, context=context, exclusive=self._exclusive)
            created = with_target(root, normal, path, work, make_parents=context.if_match is None)
        mode = "create_only" if self._exclusive else "overwrite"
        result = Written(root=root.name, path=escape_name(normal), size=self._size, mode=mode, created=created)
        result["sha256"] = self._hasher.hexdigest()
        return normal, result

    def close(self) -> None:
        """Remove the staged entry."""
        with self._lock:
            self._staged.__exit__()
            os.close(self._dir_fd)


def require_size(size: int, max_bytes: int) -> None:
    """Raise if an upload is too large."""
    if size > max_bytes:
        raise FileTooLarge(
            f"an upload has at most {human_size(max_bytes)}", hint="the operator can change `max_upload_size`"
        )


def _copy_to(source: int, cancellation: Cancellation, target: int) -> None:
    copy_content(source, target, cancellation)


def _exists(root: Root, path: str) -> bool:
    try:
        with root.confined.opened(path, os.O_PATH | os.O_NOFOLLOW):
            return True
    except FileNotFoundError:
        return False


def _directory_above(root: Root, path: str) -> int:
    """The nearest directory above a path that exists, open for listing."""
    while True:
        path = path.rpartition("/")[0]
        try:
            return root.confined.open_directory(path)
        except FileNotFoundError:
            if not path:
                raise
