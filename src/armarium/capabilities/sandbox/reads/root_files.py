"""Reads files at paths that callers give: their content, hashes and metadata."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from armarium.capabilities.sandbox.error_context import checked_path
from armarium.capabilities.sandbox.errors import FileTooLarge
from armarium.capabilities.sandbox.reads.file_content import ReadLimits, Window, digest, human_size, read
from armarium.capabilities.sandbox.reads.metadata import metadata
from armarium.capabilities.sandbox.results import FailedRead, FileContent, Hash, Metadata
from armarium.capabilities.sandbox.roots import Root
from armarium.capabilities.sandbox.threads.pool import expect_bytes
from armarium.foundation.cancellation import Cancellation
from armarium.foundation.files.errors import FileError
from armarium.foundation.files.names import escape_name
from armarium.foundation.tools import render_error

_MAX_TOTAL_BYTES = 16 * 1024 * 1024
"""Limit for all files that one call reads together."""


def read_file(
    root: Root, path: str, window: Window, limits: ReadLimits, cancellation: Cancellation, number_lines: bool = False
) -> FileContent:
    """Read a file or a part of it."""
    with checked_path(root, path) as normal:
        window.check()
        with _opened(root, normal) as (fd, status):
            content = read(fd, status.st_size, window, limits, cancellation, number_lines=number_lines)
    return FileContent(root=root.name, path=escape_name(normal), **content)  # pyright: ignore[reportCallIssue] no overlap


def read_files(
    root: Root, paths: Sequence[str], limits: ReadLimits, cancellation: Cancellation
) -> tuple[list[FileContent | FailedRead], list[FileError]]:
    """Read several files; also return the errors that are denials, for the audit log."""
    files: list[FileContent | FailedRead] = []
    denials: list[FileError] = []
    room = _MAX_TOTAL_BYTES
    for path in paths:
        expect_bytes(_MAX_TOTAL_BYTES - room)
        try:
            content = read_file(root, path, Window(), limits, cancellation)
            if content["size"] > room:
                raise FileTooLarge(
                    f"the files together are larger than {human_size(_MAX_TOTAL_BYTES)}: {path}",
                    hint="ask for fewer files at once",
                )
            room -= content["size"]
            files.append(content)
        except FileError as error:
            if error.security:
                denials.append(error)
            files.append(FailedRead(path=path, error=render_error(error)["error"]))
    return files, denials


def stat_file(root: Root, path: str, include_sha256: bool, cancellation: Cancellation) -> Metadata:
    """Metadata of an entry, on request with the hash of a file."""
    with checked_path(root, path) as normal:
        found = metadata(root, normal)
        if include_sha256 and "file" in (found["type"], found.get("target", {}).get("type")):
            with _opened(root, normal) as (fd, status):
                expect_bytes(status.st_size)
                found["sha256"] = digest(fd, "sha256", cancellation)
    return found


def hash_file(root: Root, path: str, algorithm: str, cancellation: Cancellation) -> Hash:
    """The hash of a file."""
    with checked_path(root, path) as normal, _opened(root, normal) as (fd, status):
        expect_bytes(status.st_size)
        hexadecimal = digest(fd, algorithm, cancellation)
    return Hash(root=root.name, path=escape_name(normal), algorithm=algorithm, hash=hexadecimal, size=status.st_size)


@contextmanager
def _opened(root: Root, path: str) -> Generator[tuple[int, os.stat_result]]:
    with root.confined.opened_regular(path) as (fd, status):
        if root.ignore:
            root.require_visible(root.confined.locate(fd, last_known=True))
        yield fd, status
