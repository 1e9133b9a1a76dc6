"""Replaces, patches and appends to single files atomically.

The new content is staged without a lock. The lock is held only for the final check and the rename.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, nullcontext, suppress

from armarium.capabilities.sandbox.changes import targets
from armarium.capabilities.sandbox.changes.content import copy_content, copy_owner_and_mode
from armarium.capabilities.sandbox.changes.targets import ChangeContext, Target, Version, require_match, same_state
from armarium.capabilities.sandbox.errors import AlreadyExists, FileTooLarge, PermissionDenied, destination_errors
from armarium.capabilities.sandbox.patch.patcher import PatchedContent, apply_patch
from armarium.capabilities.sandbox.reads.file_content import human_size, pread_all
from armarium.capabilities.sandbox.threads.pool import expect_bytes
from armarium.foundation.files.beneath import closed_after
from armarium.foundation.files.directory_locks import DirectoryLocks
from armarium.foundation.files.staged_entries import Staged, staged_file

_MAX_PATCHED_BYTES = 64 * 1024 * 1024
_MAX_HASHED_APPEND_BYTES = 8 * 1024 * 1024
"""Up to this size an append returns the hash of the whole file, which requires reading it."""
_NEW_FILE_MODE = 0o666
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_TRIES = 20

Fill = Callable[[int], None]
"""Writes a file's content into an open descriptor."""


def write(target: Target, content: bytes, mode: str, context: ChangeContext) -> tuple[bool, str | None]:
    """Overwrite, append or create. Returns whether there was no file before, and the hash of the whole file."""
    if mode == "append":
        return _append(target, content, context)
    created = put(target, lambda fd: write_all(fd, content), context, exclusive=mode == "create_only")
    return created, sha256(content)


def put(target: Target, fill: Fill, context: ChangeContext, *, exclusive: bool) -> bool:
    """Replace a file, or create it. Returns whether there was no file before."""

    def fill_for(before: Version) -> Fill:
        require_match(before, target.shown, context)
        if exclusive and before.status is not None:
            raise already_exists(target.shown)
        return fill

    return replace_file(target, fill_for, context.locks, depends=context.if_match is not None, exclusive=exclusive)


def patch(
    target: Target, diff: bytes, context: ChangeContext, *, reveal: bool, dry_run: bool
) -> tuple[bytes | None, PatchedContent]:
    """Apply a diff. Returns the content before and after. Errors quote the file only with `reveal`."""
    outcome: tuple[bytes | None, PatchedContent] | None = None

    def fill_for(before: Version) -> Fill:
        nonlocal outcome
        require_match(before, target.shown, context)
        content = _patchable(before, target.shown)
        result = apply_patch(content, diff, reveal=reveal)
        outcome = content, result
        return lambda fd: write_all(fd, result.content)

    if dry_run:
        target.status()
        with targets.version_at(target.dir_fd, target.name) as before:
            fill_for(before)
    else:
        replace_file(target, fill_for, context.locks, depends=True)
    assert outcome is not None
    return outcome


def _patchable(before: Version, shown: str) -> bytes | None:
    if before.status is None:
        return None
    if before.status.st_size > _MAX_PATCHED_BYTES:
        raise FileTooLarge(
            f"file too large to patch (size: {human_size(before.status.st_size)}, "
            f"limit: {human_size(_MAX_PATCHED_BYTES)}): {shown}"
        )
    expect_bytes(before.status.st_size)
    return pread_all(before.fd, 0, sys.maxsize)


def sha256(content: bytes) -> str:
    """The hash that `if_match` compares."""
    return hashlib.sha256(content).hexdigest()


def replace_file(
    target: Target,
    fill_for: Callable[[Version], Fill],
    locks: DirectoryLocks,
    *,
    depends: bool,
    exclusive: bool = False,
    new_mode: int = _NEW_FILE_MODE,
    wait_long: bool = False,
) -> bool:
    """Write a new file beside the old one and rename it to the target's name, with the old one's mode and owner.

    `depends`: the new content depends on the old one. If the file has changed by the time the lock is held, the new
    content is created again under the lock. Returns whether there was no file before.
    """
    created: bool | None = None
    with (
        _staged_replacement(target, fill_for, new_mode, readable=depends) as (before, new),
        locks.holding(target.dir_fd, wait_long=wait_long),
    ):
        now = target.status()
        is_current = same_state(now, before.status)
        if is_current or not depends:
            if not is_current and now is not None:
                copy_owner_and_mode(new.fd, now)
            _put(new, target, exclusive)
            created = now is None
    if created is None:
        with (
            locks.holding(target.dir_fd, wait_long=wait_long),
            _staged_replacement(target, fill_for, new_mode) as (before, new),
        ):
            _put(new, target, exclusive)
            created = before.status is None
    os.fsync(target.dir_fd)
    return created


@contextmanager
def _staged_replacement(
    target: Target, fill_for: Callable[[Version], Fill], new_mode: int, *, readable: bool = True
) -> Generator[tuple[Version, Staged]]:
    like = target.status()
    _require_writable(target, like)
    with targets.version_at(target.dir_fd, target.name) if readable else nullcontext(Version(-1, like)) as before:
        fill = fill_for(before)
        with staged_file(target.dir_fd, new_mode if before.status is None else 0o600) as new:
            fill(new.fd)
            if before.status is not None:
                copy_owner_and_mode(new.fd, before.status)
            with destination_errors():
                os.fsync(new.fd)
            yield before, new


def _put(new: Staged, target: Target, exclusive: bool) -> None:
    try:
        new.put(target.name, exclusive=exclusive)
    except FileExistsError:
        raise already_exists(target.shown) from None


def _append(target: Target, content: bytes, context: ChangeContext) -> tuple[bool, str | None]:
    """Append in place, so that programs that have the file open keep writing to the same file."""
    for _ in range(_MAX_TRIES):
        status = target.status()
        _require_writable(target, status)
        if status is None and context.if_match is None:
            with suppress(AlreadyExists):
                return write(target, content, "create_only", context)
            continue
        try:
            if target.splits_links and status is not None and status.st_nlink > 1:
                return False, _append_to_copy(target, content, context)
            return False, _append_to_existing(target, content, context)
        except FileNotFoundError:
            if context.if_match is not None:
                raise
    raise AlreadyExists(f"file is created and removed again and again: {target.shown}")


def _append_to_copy(target: Target, content: bytes, context: ChangeContext) -> None:
    """Append to a copy of the file, which replaces this one of its hard links."""

    def fill_for(before: Version) -> Fill:
        require_match(before, target.shown, context)

        def fill(fd: int) -> None:
            if before.fd >= 0:
                os.lseek(fd, copy_content(before.fd, fd, context.cancellation), os.SEEK_SET)
            write_all(fd, content)

        return fill

    replace_file(target, fill_for, context.locks, depends=True)


def _append_to_existing(target: Target, content: bytes, context: ChangeContext) -> str | None:
    with ExitStack() as opened:
        conditional = context.if_match is not None
        before = opened.enter_context(targets.version_at(target.dir_fd, target.name, readable=conditional))
        require_match(before, target.shown, context)
        with context.locks.holding(target.dir_fd):
            if not same_state(target.status(), before.status) and conditional:
                with targets.version_at(target.dir_fd, target.name) as now:
                    require_match(now, target.shown, context)
            with closed_after(os.open(target.name, _APPEND, dir_fd=target.dir_fd)) as fd:
                size = _extend(fd, content)
            if size > _MAX_HASHED_APPEND_BYTES:
                return None
            try:
                reading = opened.enter_context(closed_after(os.open(target.name, targets.READ, dir_fd=target.dir_fd)))
            except OSError:
                return None
        # Another append may follow before these bytes are hashed.
        hasher = hashlib.sha256(usedforsecurity=False)
        offset = 0
        while offset < size and (block := os.pread(reading, min(1 << 20, size - offset), offset)):
            hasher.update(block)
            offset += len(block)
        return hasher.hexdigest() if offset == size else None


def write_all(fd: int, content: bytes) -> None:
    """Write everything at the descriptor's position."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _extend(fd: int, content: bytes) -> int:
    """Append atomically. Returns the new size."""
    before = os.fstat(fd).st_size
    written = 0
    rest = memoryview(content)
    try:
        while rest:
            count = os.write(fd, rest)
            written += count
            rest = rest[count:]
        os.fsync(fd)
    except BaseException:
        # Keep what a program that does not take our lock appended after us.
        if os.fstat(fd).st_size == before + written:
            os.ftruncate(fd, before)
        raise
    return before + written


def already_exists(path: str) -> AlreadyExists:
    """The error for a file that is in the way of a new one."""
    return AlreadyExists(f"file already exists: {path}; use overwrite mode to replace")


def _require_writable(target: Target, current: os.stat_result | None) -> None:
    # The kernel allows renaming over a write-protected file. Callers do not expect that.
    if current is None or os.access(target.name, os.W_OK, dir_fd=target.dir_fd, effective_ids=True):
        return
    if target.status() is not None:  # it may have been removed since
        raise PermissionDenied(f"the file is write-protected: {target.shown}")
