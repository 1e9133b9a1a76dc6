"""Adds the root and the path to errors, and translates errors of the operating system."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

from armarium.capabilities.sandbox import errors
from armarium.capabilities.sandbox.roots import Root
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.files.confine import normalise
from armarium.foundation.files.errors import FileError, InvalidPath, IsADirectory, NotADirectory, NotARegularFile
from armarium.foundation.files.names import escape_name, leads_through_staged
from armarium.foundation.files.traversal import EntryFailed

_MAX_SHOWN_PATH = 4096
_DENIED_BY_SYSTEM = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ETXTBSY}
_MEANINGS: dict[int, tuple[type[FileError], str]] = {
    errno.ENOTDIR: (NotADirectory, "not a directory"),
    **dict.fromkeys((errno.ENXIO, errno.ENODEV), (NotARegularFile, "not a regular file")),
    errno.EISDIR: (IsADirectory, "is a directory"),
    **dict.fromkeys((errno.EEXIST, errno.ENOTEMPTY), (errors.AlreadyExists, "already exists")),
    **dict.fromkeys(
        (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL), (InvalidPath, "the file system does not take this path")
    ),
    errno.ELOOP: (errors.NotFound, "links lead in a circle"),
}
_CAUGHT = (FileError, InvalidArgument, EntryFailed, errors.DestinationFailed, OSError)


@contextmanager
def checked_path(root: Root, path: str, *, what: str = "file") -> Generator[str]:
    """Normalise a path that a caller gave and check that it is visible. Errors in the block name root and path."""
    try:
        root.require_current()
        normal = normalise(path)
        if leads_through_staged(normal):
            raise errors.PathIgnored("path is reserved for changes in progress")
        root.require_visible(normal)
        yield normal
    except _CAUGHT as error:
        _raise_with_location(error, root, path, what)


@contextmanager
def errors_at(
    root: Root, path: str, *, what: str = "file", passing: type[Exception] | tuple[()] = ()
) -> Generator[None]:
    """Let every error in the block name the root, the path and the reason, unless it already names a location."""
    try:
        yield
    except passing:
        raise
    except _CAUGHT as error:
        _raise_with_location(error, root, path, what)


def _raise_with_location(
    error: FileError | InvalidArgument | EntryFailed | errors.DestinationFailed | OSError,
    root: Root,
    path: str,
    what: str,
) -> NoReturn:
    if isinstance(error, (FileError, InvalidArgument)):
        raise (error if "root" in error.details else _located(error, root, path)) from error.__cause__
    if isinstance(error, EntryFailed):
        path = escape_name(error.path)
    cause = error if isinstance(error, OSError) else error.error
    raise _translated(cause, root, path, what) from cause


def _located(error: FileError | InvalidArgument, root: Root, path: str) -> FileError | InvalidArgument:
    message, shown = error.message, path[:_MAX_SHOWN_PATH]
    if path not in message and not isinstance(error, (InvalidPath, errors.RootUnavailable)):
        message += f": {shown}"
    if not isinstance(error, errors.RootUnavailable):
        message += f" (root: {root.name})"
    private: dict[str, str] = {}
    if (resolved := error.private.get("resolved")) is not None:
        private["resolved"] = os.path.normpath(os.path.join(root.confined.real_path, resolved))
    return error.with_context(message=message, private=private, root=root.name, path=shown)


def _translated(error: OSError, root: Root, path: str, what: str) -> FileError:
    """The error with a code of the contract. The text of the `OSError` is not used: it may contain host paths."""
    hint = None
    if error.errno == errno.ENOENT:
        kind, message, hint = errors.NotFound, f"{what} not found", "list_folder or glob shows what is there"
    elif error.errno in _MEANINGS:
        kind, message = _MEANINGS[error.errno]
    else:
        kind = errors.PermissionDenied if error.errno in _DENIED_BY_SYSTEM else errors.StorageFailure
        message = errors.os_error_reason(error)
    return kind(f"{message}: {path} (root: {root.name})", hint=hint, root=root.name, path=path)
