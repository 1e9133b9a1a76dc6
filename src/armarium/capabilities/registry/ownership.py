"""Decides whether the registry in a project was written by this user. A project may come from anywhere, with one in it.

A registry cannot be rebuilt, so a foreign one is refused until its user confirms it.
"""

from __future__ import annotations

import os
import secrets
import shlex
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from armarium.capabilities.registry.errors import RegistryUnusable
from armarium.capabilities.registry.settings import registry_file
from armarium.capabilities.registry.storage.database import KNOWN_VERSIONS, STATEMENTS
from armarium.capabilities.registry.storage.file import connect_to_read, connect_to_write
from armarium.foundation.security.ownership import has_mark, is_private_file, mark_of, predates_marks
from armarium.foundation.security.trust import Confirmable
from armarium.foundation.sqlite import Fault, fault_of, is_empty, schema_version

OWNER_MARK = "written_by"
"""The fact with the mark of the user who wrote the registry."""
_ID = "registry_id"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def new_owner() -> dict[str, str]:
    """The facts that mark a registry as this user's."""
    registry_id = secrets.token_hex(16)
    return {_ID: registry_id, OWNER_MARK: mark_of("registry", registry_id)}


def require_own_registry(file: Path, *, found: bool = False) -> None:
    """Raise `RegistryUnusable` if there is a registry that this user did not write.

    A registry without a mark may be of an earlier version. If it was `found` in a directory, not named in settings, it
    must also be older than the first start of this version.
    """
    for path in (file.parent, file):
        if path.is_symlink():
            raise RegistryUnusable(f"{path} is a link", hint="remove it; the registry makes its own files")
    if not os.path.lexists(file):
        return
    is_ours = is_private_file(file) and not os.lstat(file.parent).st_mode & _OTHERS_WRITE
    if is_ours:
        is_ours = _is_own(file, found=found)
    if not is_ours:
        raise RegistryUnusable(
            f"the registry in {file.parent} was not written here by this user",
            hint=f"if you trust it, run: armarium trust add {shlex.quote(str(file.parent.parent))}",
        )


def registry_to_confirm(directory: Path) -> Iterator[Confirmable]:
    """The registry of a directory, if it can be used and is not this user's."""
    file = registry_file(directory)
    try:
        require_own_registry(file, found=True)
    except RegistryUnusable:
        if not file.parent.is_symlink() and stat.S_ISREG(os.lstat(file).st_mode):
            values = {"registry": "findings and judgements that somebody else may have written"}
            yield Confirmable(file, values, directory, lambda: _take(file))


def _take(file: Path) -> None:
    """Make the registry this user's own."""
    os.chmod(file.parent, 0o700)
    os.chmod(file, 0o600)
    try:
        with closing(connect_to_write(file)) as connection:
            connection.executemany(STATEMENTS["put_fact"], new_owner().items())
    except sqlite3.Error as error:
        raise RegistryUnusable(f"{file} cannot be changed: {error}", hint="let this user write there") from error


def _is_own(file: Path, *, found: bool) -> bool:
    """Whether the file has this user's mark, or may be of an earlier version. One that nobody can open counts too:
    opening it reports why."""
    try:
        with closing(connect_to_read(file)) as connection:
            version = schema_version(connection)
            if version not in KNOWN_VERSIONS and (version or is_empty(connection)):
                return True
            facts = {name: connection.execute(STATEMENTS["fact"], (name,)).fetchone() for name in (_ID, OWNER_MARK)}
    except sqlite3.Error as error:
        return fault_of(error) not in (None, Fault.NOT_TEXT)
    except UnicodeDecodeError:
        return False
    registry_id, mark = ((row or (None,))[0] for row in facts.values())
    return has_mark("registry", registry_id, mark) or (mark is None and (not found or predates_marks(file)))
