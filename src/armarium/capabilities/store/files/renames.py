"""Renames of files and directories, each in one transaction."""

from __future__ import annotations

from armarium.capabilities.store.arguments import RenameArgs
from armarium.capabilities.store.database.pool import Connection, Row
from armarium.capabilities.store.errors import AlreadyExists, InvalidPath, NotDirectory, NotFound
from armarium.capabilities.store.files.writes import SQL, delete_range, plan_for_many
from armarium.capabilities.store.model import Renamed, Scope
from armarium.capabilities.store.settings import StoreSettings
from armarium.capabilities.store.validation import MAX_PATH_LENGTH, below, exactly, parents_of


async def rename_path(
    connection: Connection, settings: StoreSettings, scope: Scope, args: RenameArgs, credential_ref: str | None
) -> Renamed:
    """Move a file or a directory without copying contents, in a transaction that holds the project's lock."""
    source, target = args.from_path, args.to_path
    facts = await connection.fetchrow(SQL["inspect_move"], *scope, source, target, parents_of(target))
    assert facts is not None, "the statement always gives a row"
    _check_move(facts, source, target, overwrite=args.overwrite)
    if facts["target_is_file"]:
        # The index job of the rename also removes the index of the replaced file.
        await delete_range(connection, settings, scope, exactly(target), queued=False)
    if facts["source_version"] is None:
        await plan_for_many(connection)
    paths = exactly(source) if facts["source_version"] else below(source)
    how = (source, target, settings.search.enabled, credential_ref)
    return {"moved_count": await connection.fetchval(SQL["move_files"], *scope, *paths, *how)}


def _check_move(facts: Row, source: str, target: str, *, overwrite: bool) -> None:
    is_file = facts["source_version"] is not None
    if not is_file and not facts["files_below"]:
        raise NotFound("nothing has this path", hint="list the parent directory with file_list", path=source)
    if not is_file and target.startswith(source + "/"):
        raise InvalidPath("a directory cannot be moved into itself", path=target)
    if not is_file and facts["longest_below"] - len(source) + len(target) > MAX_PATH_LENGTH:
        raise InvalidPath(f"a path in the directory would exceed {MAX_PATH_LENGTH} characters", path=target)
    if facts["target_lies_below_file"]:
        raise NotDirectory("a part of the new path is a file", hint="choose another path", path=target)
    if facts["target_is_directory"]:
        raise AlreadyExists("the new path is a directory", hint="choose a path inside it, or a new one", path=target)
    if facts["target_is_file"] and not (overwrite and is_file):
        hint = "set overwrite to replace it" if is_file else "a directory cannot replace a file"
        raise AlreadyExists("a file with the new path already exists", hint=hint, path=target)
