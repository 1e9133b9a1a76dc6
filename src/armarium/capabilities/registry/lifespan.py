"""Opens the registry of a project and closes it again: for writing if possible, otherwise for reading."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

from anyio import to_thread

from armarium.capabilities.registry.changes.file_records import Ids
from armarium.capabilities.registry.errors import RegistryUnusable
from armarium.capabilities.registry.ownership import OWNER_MARK, new_owner, require_own_registry
from armarium.capabilities.registry.paths import ProjectPaths
from armarium.capabilities.registry.service import Registry
from armarium.capabilities.registry.settings import prefix_of, registry_file
from armarium.capabilities.registry.storage.database import RegistryDatabase
from armarium.capabilities.registry.storage.file import is_writable
from armarium.foundation.files.confine import ConfinedRoot
from armarium.foundation.files.credential_files import CREDENTIAL_FILES
from armarium.foundation.files.path_rules import PathRules
from armarium.foundation.sqlite import BUSY_TIMEOUT_S

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_registry(
    project: Path,
    prefix: str | None = None,
    *,
    read_only: bool = False,
    busy_timeout_s: float = BUSY_TIMEOUT_S,
    hidden: Sequence[str] = CREDENTIAL_FILES,
) -> AsyncGenerator[Registry]:
    """Open the registry of a project's directory, and create it the first time. `hidden` are patterns of files whose
    content is not read.

    A registry that cannot be written is opened for reading. With `read_only` nothing is written at all, so that it also
    works on a full disk.
    """
    root = await to_thread.run_sync(_open_root, project)
    with root:
        database = await to_thread.run_sync(_open_database, project, prefix, read_only, busy_timeout_s)
        with closing(database):
            stored_prefix = await to_thread.run_sync(_stored_prefix, database, prefix, project)
            yield Registry(database, ProjectPaths(root, str(project), hidden=PathRules(hidden)), Ids(stored_prefix))


def _open_root(project: Path) -> ConfinedRoot:
    try:
        return ConfinedRoot(str(project))
    except OSError as error:
        raise RegistryUnusable(
            f"the project cannot be opened: {project}: {error.strerror}", hint="name a directory that exists"
        ) from error


def _open_database(project: Path, prefix: str | None, read_only: bool, busy_timeout_s: float) -> RegistryDatabase:
    file = registry_file(project)
    require_own_registry(file)
    if not read_only and file.exists() and not is_writable(file):
        _log.warning("the registry cannot be written, so it is open for reading only")
        read_only = True
    facts = {"prefix": prefix or prefix_of(project), **new_owner()}
    try:
        return RegistryDatabase(file, read_only=read_only, initial_facts=facts, busy_timeout_s=busy_timeout_s)
    except OSError as error:
        hint = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "let this user write there"
        raise RegistryUnusable(f"the registry cannot be stored in {project}: {error.strerror}", hint=hint) from error


def _stored_prefix(database: RegistryDatabase, wanted: str | None, project: Path) -> str:
    """The prefix of new ids. It is stored, so that processes whose settings do not name one use the same."""
    with database.reading() as reader:
        stored = reader.row("fact", ("prefix",))
        unmarked = reader.row("fact", (OWNER_MARK,)) is None
    if unmarked and not database.read_only:
        # Of an earlier version, which wrote no marks.
        with database.writing() as writer:
            writer.many("put_fact", new_owner().items())
    prefix = wanted or (stored[0] if stored else prefix_of(project))
    database.initial_facts["prefix"] = prefix
    if (stored is None or stored[0] != prefix) and not database.read_only:
        with database.writing() as writer:
            writer.many("put_fact", [("prefix", prefix)])
    return prefix
