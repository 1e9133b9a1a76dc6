"""Opens the registry of a project's directory: for writing where that can be, for reading where it cannot."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import to_thread

from armarium.capabilities.registry.changes.ids import Ids
from armarium.capabilities.registry.errors import RegistryUnusable
from armarium.capabilities.registry.paths import ProjectPaths
from armarium.capabilities.registry.service import Registry
from armarium.capabilities.registry.settings import prefix_of, registry_file
from armarium.capabilities.registry.storage.database import Database
from armarium.capabilities.registry.storage.file import is_writable
from armarium.foundation.files.confine import ConfinedRoot

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_registry(
    project: Path, prefix: str | None = None, *, read_only: bool = False
) -> AsyncGenerator[Registry]:
    """The registry of a project's directory, made on the first time. One that cannot be written is open for reading,
    which is also how whoever only looks has it: on a full disk as well, and without a trace."""
    root, database, ids = await to_thread.run_sync(_begin, project, prefix, read_only)
    with root:
        try:
            yield Registry(database, ProjectPaths(root, str(project)), ids)
        finally:
            database.close()


def _begin(project: Path, prefix: str | None, read_only: bool) -> tuple[ConfinedRoot, Database, Ids]:
    try:
        root = ConfinedRoot(str(project))
    except OSError as error:
        raise RegistryUnusable(
            f"the project cannot be opened: {project}: {error.strerror}", hint="name a directory that exists"
        ) from error
    try:
        database = _database(project, prefix, read_only)
    except BaseException:
        root.close()
        raise
    try:
        return root, database, Ids(_kept_prefix(database, prefix, project))
    except BaseException:
        database.close()
        root.close()
        raise


def _database(project: Path, prefix: str | None, read_only: bool) -> Database:
    file = registry_file(project)
    if not read_only and file.exists() and not is_writable(file):
        _log.warning("the registry cannot be written, so it is open for reading only")
        read_only = True
    try:
        return Database(file, read_only=read_only, begin_with={"prefix": prefix or prefix_of(project)})
    except OSError as error:
        hint = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "let this user write there"
        raise RegistryUnusable(f"the registry cannot be kept in {project}: {error.strerror}", hint=hint) from error


def _kept_prefix(database: Database, wanted: str | None, project: Path) -> str:
    """What ids begin with: the same for everybody who opens this registry, whatever their settings leave out."""
    with database.reading() as reader:
        kept = reader.row("fact", ("prefix",))
    prefix = wanted or (kept[0] if kept else prefix_of(project))
    database.begin_with["prefix"] = prefix
    if (kept is None or kept[0] != prefix) and not database.read_only:
        with database.writing() as writer:
            writer.many("put_fact", [("prefix", prefix)])
    return prefix
