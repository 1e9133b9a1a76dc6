"""Writes and patches files, and creates folders, at paths that callers give."""

from __future__ import annotations

import os
import stat
from functools import partial

from armarium.capabilities.sandbox.changes.targets import ChangeContext, has_parent, with_target
from armarium.capabilities.sandbox.changes.writes import patch, sha256, write
from armarium.capabilities.sandbox.error_context import checked_path
from armarium.capabilities.sandbox.patch.diffs import unified_diff
from armarium.capabilities.sandbox.patch.patcher import apply_patch
from armarium.capabilities.sandbox.results import Patched, Written
from armarium.capabilities.sandbox.roots import Root
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.files.errors import IsADirectory, NotADirectory
from armarium.foundation.files.names import escape_name


def write_file(root: Root, path: str, content: str, mode: str, context: ChangeContext) -> tuple[str, Written]:
    """Write text to a file, with missing parent directories. Returns the normalised path as well."""
    with checked_path(root, path) as normal:
        require_file_path(path)
        encoded = _encoded(content, "content")
        work = partial(write, content=encoded, mode=mode, context=context)
        created, digest = with_target(root, normal, path, work, make_parents=context.if_match is None)
    result = Written(root=root.name, path=escape_name(normal), size=len(encoded), mode=mode, created=created)
    if digest is not None:
        result["sha256"] = digest
    return normal, result


def patch_file(root: Root, path: str, diff: str, context: ChangeContext, dry_run: bool) -> tuple[str, Patched]:
    """Apply a unified diff to a file. Returns the normalised path as well."""
    encoded = _encoded(diff, "patch")
    # Where reading is not allowed, the error of a failing patch must not reveal the content of the file.
    may_read = "read_file" in root.allowed_tools
    with checked_path(root, path) as normal:
        require_file_path(path)
        before: bytes | None = None
        if dry_run and context.if_match is None and not has_parent(root, normal):
            patched = apply_patch(None, encoded)
        else:
            work = partial(patch, diff=encoded, context=context, reveal=may_read, dry_run=dry_run)
            make_parents = not dry_run and context.if_match is None
            before, patched = with_target(root, normal, path, work, make_parents=make_parents)
    result = Patched(
        root=root.name,
        path=escape_name(normal),
        hunks_applied=patched.hunks_applied,
        created=patched.created,
        size=len(patched.content),
        sha256=sha256(patched.content),
        dry_run=dry_run,
    )
    if dry_run and may_read:
        result["diff"] = unified_diff(before, patched.content, normal).decode("utf-8", "replace")
    return normal, result


def create_folder(root: Root, path: str) -> tuple[str, bool]:
    """Create a directory and its missing parents. Returns the normalised path, and whether the directory existed."""
    with checked_path(root, path, what="directory") as normal:
        existed = is_directory(root, normal)
        if root.ignore:
            root.require_visible(root.resolved(normal), is_directory=True)
        if not existed:
            root.require_writable(normal, is_directory=True)
            if root.restricts_writing:
                root.require_writable(root.resolved(normal), is_directory=True)
            os.close(root.confined.make_directories(normal))
    return normal, existed


def is_directory(root: Root, path: str) -> bool:
    """Whether a directory is at the path. Raise if something else is."""
    try:
        with root.confined.opened(path, os.O_PATH) as fd:
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                return True
    except FileNotFoundError:
        return False
    raise NotADirectory(f"path exists as a file, not a directory: {escape_name(path)}")


def require_directory_if_slash(root: Root, path: str, normal: str) -> None:
    """Raise if the path ends with a slash and no directory is there: a file must not be created under that name."""
    if path.endswith("/") and not is_directory(root, normal):
        raise NotADirectory("there is no such directory", hint="create_folder makes one")


def require_file_path(path: str) -> None:
    """Raise if the path can only be that of a directory."""
    if path.endswith(("/", "/.")):
        raise IsADirectory("a path that ends with a slash names a directory", hint="name the file")


def _encoded(text: str, field: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidArgument(f"`{field}` holds characters that are not valid Unicode text", field=field) from None
