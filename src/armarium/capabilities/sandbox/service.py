"""What the sandbox does for a caller: the root is entered, its allow-list asked, the work done in a thread."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Literal

import anyio

from armarium.capabilities.sandbox import answers, describe, transfer, writes
from armarium.capabilities.sandbox.errors import FileTooLarge
from armarium.capabilities.sandbox.patch import Patched as PatchResult
from armarium.capabilities.sandbox.patch import apply_patch, unified_diff
from armarium.capabilities.sandbox.reading import ReadLimits, Window, digest, human_size, read
from armarium.capabilities.sandbox.roots import Root, Roots, about
from armarium.capabilities.sandbox.search.grep import Query
from armarium.capabilities.sandbox.search.in_root import NameQuery, Scope, glob_root, grep_root
from armarium.capabilities.sandbox.workers import Workers
from armarium.capabilities.sandbox.writes import FileLocks, place_for_writing
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.events import Events, FileChanged, FileMoved
from armarium.foundation.files.errors import FileError, NotADirectory
from armarium.foundation.refs import FileRef
from armarium.foundation.tools import Call, render_error

_MOST_BYTES_TOGETHER = 16 * 1024 * 1024


class Sandbox:
    """Files and folders of the named roots, and nothing outside them."""

    def __init__(self, roots: Roots, workers: Workers, events: Events, limits: ReadLimits, search_seconds: int) -> None:
        self._roots = roots
        self._workers = workers
        self._events = events
        self._limits = limits
        self._search_seconds = search_seconds
        self._locks = FileLocks()

    def list_roots(self) -> answers.RootList:
        """Names and allowed tools; never a host path."""
        roots = [
            answers.RootInfo(name=root.name, allowed_tools=root.effective_tools(), read_only=root.read_only)
            for root in self._roots
        ]
        return answers.RootList(roots=roots, count=len(roots))

    async def list_folder(
        self, call: Call, root_name: str, path: str, limit: int | None, cursor: str | None
    ) -> answers.Folder:
        root = self._roots.enter(root_name, "list_folder", path)

        def work() -> answers.Folder:
            with about(root, path, what="directory") as normal:
                return describe.list_folder(root, normal, limit, cursor)

        return await self._workers.run(work)

    async def read_file(
        self, call: Call, root_name: str, path: str, window: Window, *, number_lines: bool
    ) -> answers.FileContent:
        root = self._roots.enter(root_name, "read_file", path)
        return await self._workers.run(self._read, call, root, path, window, number_lines)

    def _read(self, call: Call, root: Root, path: str, window: Window, number_lines: bool) -> answers.FileContent:
        with about(root, path) as normal, self._opened(root, normal, window) as (fd, status):
            content = read(fd, status.st_size, window, self._limits, call.pulse, number_lines=number_lines)
        return answers.FileContent(root=root.name, path=normal, **content)  # pyright: ignore[reportCallIssue] no overlap

    @contextmanager
    def _opened(self, root: Root, path: str, window: Window) -> Generator[tuple[int, os.stat_result]]:
        window.check()
        with root.confined.opened_regular(path) as (fd, status):
            if root.ignore:
                root.require_visible(root.confined.locate(fd, last_known=True))
            yield fd, status

    async def read_files(self, call: Call, root_name: str, paths: Sequence[str]) -> answers.FileContents:
        root = self._roots.enter(root_name, "read_file", paths[0])

        def work() -> list[answers.FileContent | answers.FailedRead]:
            files: list[answers.FileContent | answers.FailedRead] = []
            room = _MOST_BYTES_TOGETHER
            for path in paths:
                try:
                    content = self._read(call, root, path, Window(), number_lines=False)
                    if content["size"] > room:
                        raise FileTooLarge(
                            f"the files together are larger than {human_size(_MOST_BYTES_TOGETHER)}: {path}",
                            hint="ask for fewer files at once",
                        )
                    room -= content["size"]
                    files.append(content)
                except FileError as error:
                    if error.security:
                        call.denials.append(error)
                    files.append(answers.FailedRead(path=path, error=render_error(error)["error"]))
            return files

        files = await self._workers.run(work)
        return answers.FileContents(root=root.name, files=files, count=len(files))

    async def write_file(
        self, call: Call, root_name: str, path: str, content: str, mode: str, if_match: str | None
    ) -> answers.Written:
        root = self._roots.enter(root_name, "write_file", path, writing=True)

        def work() -> tuple[str, writes.Replaced]:
            with (
                about(root, path) as normal,
                place_for_writing(root, normal, self._locks, make_parents=if_match is None) as place,
            ):
                writes.require_match(place.dir_fd, place.name, if_match, path, call.pulse)
                return normal, writes.write(place, _encoded(content, "content"), mode, normal, call.pulse)

        normal, result = await self._workers.change(work)
        await self._changed(call, root, normal, "created" if result.created else "modified")
        return answers.Written(
            root=root.name,
            path=normal,
            size=result.size,
            mode=mode,
            created=result.created,
            sha256=result.sha256,
        )

    async def remove_file(self, call: Call, root_name: str, path: str, if_match: str | None) -> answers.Removed:
        root = self._roots.enter(root_name, "remove_file", path, writing=True)

        def work() -> str:
            with about(root, path) as normal:
                transfer.remove_file(root, normal, if_match, self._locks, call.pulse)
                return normal

        normal = await self._workers.change(work)
        await self._changed(call, root, normal, "removed")
        return answers.Removed(root=root.name, path=normal, removed=True)

    async def patch_file(
        self, call: Call, root_name: str, path: str, patch: str, if_match: str | None, *, dry_run: bool
    ) -> answers.Patched:
        root = self._roots.enter(root_name, "patch_file", path, writing=True)
        # Where reading is not allowed, a failing patch must not read the file out line by line.
        may_read = "read_file" in root.allowed_tools

        def answered(before: bytes | None, result: PatchResult, normal: str) -> answers.Patched:
            answer = answers.Patched(
                root=root.name,
                path=normal,
                hunks_applied=result.hunks_applied,
                created=result.created,
                size=len(result.content),
                sha256=writes.sha256(result.content),
                dry_run=dry_run,
            )
            if dry_run and may_read:
                answer["diff"] = unified_diff(before, result.content, normal)
            return answer

        def work() -> answers.Patched:
            diff = _encoded(patch, "patch")
            with about(root, path) as normal:
                if if_match is None and not writes.has_parent(root, normal):
                    # Tried before any directory is made: a patch that fails leaves none behind, and a dry run neither.
                    result = apply_patch(None, diff)
                    if dry_run:
                        return answered(None, result, normal)
                make_parents = not dry_run and if_match is None
                with place_for_writing(root, normal, self._locks, make_parents=make_parents) as place:
                    writes.require_match(place.dir_fd, place.name, if_match, path, call.pulse)
                    before, result = writes.patched(place, diff, path, reveal=may_read)
                    if not dry_run:
                        writes.replace_with(place, result.content, path)
                    return answered(before, result, normal)

        answer = await self._workers.change(work)
        if not dry_run:
            await self._changed(call, root, answer["path"], "created" if answer["created"] else "modified")
        return answer

    async def create_folder(self, call: Call, root_name: str, path: str) -> answers.FolderCreated:
        root = self._roots.enter(root_name, "create_folder", path, writing=True)

        def work() -> tuple[str, bool]:
            with about(root, path, what="directory") as normal:
                existed = _is_directory(root, normal)
                if root.ignore:
                    root.require_visible(root.whereabouts(normal), is_directory=True)
                if not existed:
                    os.close(root.confined.make_directories(normal))
                return normal, existed

        normal, existed = await self._workers.change(work)
        if not existed:
            await self._changed(call, root, normal, "created", is_directory=True)
        return answers.FolderCreated(root=root.name, path=normal, created=True, existed=existed)

    async def remove_folder(self, call: Call, root_name: str, path: str) -> answers.Removed:
        root = self._roots.enter(root_name, "remove_folder", path, writing=True)

        def work() -> tuple[str, int]:
            with about(root, path, what="directory") as normal:
                return normal, transfer.remove_folder(root, normal, call.pulse)

        normal, removed = await self._workers.run(work)
        await self._changed(call, root, normal, "removed", is_directory=True)
        return answers.Removed(root=root.name, path=normal, removed=True, entries_removed=removed)

    async def stat_file(self, call: Call, root_name: str, path: str, *, include_sha256: bool) -> answers.Metadata:
        root = self._roots.enter(root_name, "stat_file", path)

        def work() -> answers.Metadata:
            with about(root, path) as normal:
                found = describe.metadata(root, normal)
                if include_sha256 and "file" in (found["type"], found.get("target", {}).get("type")):
                    with self._opened(root, normal, Window()) as (fd, _):
                        found["sha256"] = digest(fd, "sha256", call.pulse)
                return found

        return await self._workers.run(work)

    async def hash_file(self, call: Call, root_name: str, path: str, algorithm: str) -> answers.Hash:
        root = self._roots.enter(root_name, "hash_file", path)

        def work() -> answers.Hash:
            with about(root, path) as normal, self._opened(root, normal, Window()) as (fd, status):
                return answers.Hash(
                    root=root.name,
                    path=normal,
                    algorithm=algorithm,
                    hash=digest(fd, algorithm, call.pulse),
                    size=status.st_size,
                )

        return await self._workers.run(work)

    async def permissions_file(self, call: Call, root_name: str, path: str) -> answers.Permissions:
        root = self._roots.enter(root_name, "permissions_file", path)

        def work() -> answers.Permissions:
            with about(root, path) as normal:
                return describe.permissions(root, normal)

        return await self._workers.run(work)

    async def copy(
        self, call: Call, source: tuple[str, str], target: tuple[str, str], if_match: str | None
    ) -> answers.Copied:
        from_root = self._roots.enter(source[0], "copy", source[1])
        into_root = self._roots.enter(target[0], "copy", target[1], writing=True)

        def work() -> tuple[str, transfer.Transferred]:
            with about(from_root, source[1], what="source file") as path:
                found = transfer.copy_source(from_root, path)
            with about(into_root, target[1]) as wanted:
                return path, transfer.copy(found, into_root, wanted, if_match, self._locks, call.pulse)

        path, done = await self._workers.run(work)
        await self._changed(
            call,
            into_root,
            done.destination,
            "modified" if done.replaced else "created",
            is_directory=done.is_directory,
        )
        return answers.Copied(
            source=str(from_root.ref(path)),
            destination=str(into_root.ref(done.destination)),
            is_directory=done.is_directory,
            size=done.size,
            files_copied=done.files,
            skipped=[describe.shown(skipped) for skipped in done.skipped],
        )

    async def move(
        self, call: Call, source: tuple[str, str], target: tuple[str, str], if_match: str | None
    ) -> answers.Moved:
        from_root = self._roots.enter(source[0], "move", source[1], writing=True)
        into_root = self._roots.enter(target[0], "move", target[1], writing=True)

        def work() -> tuple[str, transfer.Transferred]:
            with about(from_root, source[1], what="source file") as path:
                transfer.require_movable_source(from_root, path)
            with about(into_root, target[1]) as wanted:
                return path, transfer.move(from_root, path, into_root, wanted, if_match, self._locks, call.pulse)

        path, done = await self._workers.run(work)
        with anyio.CancelScope(shield=True):  # all of it is told, or listeners would think that a file is gone
            await self._moved(call, from_root, path, into_root, done)
            await self._changed(call, from_root, path, "removed", is_directory=done.is_directory)
            await self._changed(
                call,
                into_root,
                done.destination,
                "modified" if done.replaced else "created",
                is_directory=done.is_directory,
            )
        return answers.Moved(source=str(from_root.ref(path)), destination=str(into_root.ref(done.destination)))

    async def grep(self, call: Call, root_name: str, path: str, query: Query, scope: Scope) -> answers.Matches:
        root = self._roots.enter(root_name, "grep", path)
        return await self._workers.search(grep_root, root, path, query, scope, self._search_end(scope), call.pulse)

    async def glob(self, call: Call, root_name: str, path: str, query: NameQuery, scope: Scope) -> answers.FoundFiles:
        root = self._roots.enter(root_name, "glob", path)
        if (query.pattern is None) == (query.regex is None):
            raise InvalidArgument("exactly one of `pattern` or `regex` must be provided")
        return await self._workers.search(glob_root, root, path, query, scope, self._search_end(scope), call.pulse)

    def _search_end(self, scope: Scope) -> float:
        """When the search ends, counted from now: one that waits for a thread ends in time as well."""
        return time.monotonic() + min(scope.timeout_seconds, self._search_seconds)

    async def _changed(
        self,
        call: Call,
        root: Root,
        path: str,
        change: Literal["created", "modified", "removed"],
        *,
        is_directory: bool = False,
    ) -> None:
        with anyio.CancelScope(shield=True):  # it has happened, whether or not the caller still waits
            ref = root.ref(path)
            await self._events.publish(FileChanged(ref, change, is_directory, call.principal, _host_path(root, ref)))

    async def _moved(self, call: Call, from_root: Root, path: str, into_root: Root, done: transfer.Transferred) -> None:
        ref, previous = into_root.ref(done.destination), from_root.ref(path)
        places = _host_path(into_root, ref), _host_path(from_root, previous)
        await self._events.publish(FileMoved(ref, previous, *places, done.is_directory, call.principal))


def _host_path(root: Root, ref: FileRef) -> str:
    return f"{root.confined.real_path}/{ref.path.lstrip('/')}"


def _encoded(text: str, field: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidArgument(f"`{field}` holds characters that are not valid Unicode text", field=field) from None


def _is_directory(root: Root, path: str) -> bool:
    try:
        with root.confined.opened(path, os.O_PATH) as fd:
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                return True
    except FileNotFoundError:
        return False
    raise NotADirectory(f"path exists and is a file, not a directory: {path}")
