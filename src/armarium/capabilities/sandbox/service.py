"""What the sandbox does for a caller: the root is entered, its allow-list asked, the work done in a thread."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Literal

import anyio

from armarium.capabilities.sandbox import results
from armarium.capabilities.sandbox.changes import copies, moves, removal, writes
from armarium.capabilities.sandbox.changes.targets import Place, has_parent, in_place
from armarium.capabilities.sandbox.error_context import checked_path
from armarium.capabilities.sandbox.errors import FileTooLarge
from armarium.capabilities.sandbox.lock_wait import Turns, repeated
from armarium.capabilities.sandbox.patch.patcher import Patched as PatchResult
from armarium.capabilities.sandbox.patch.patcher import apply_patch, unified_diff
from armarium.capabilities.sandbox.reads import metadata
from armarium.capabilities.sandbox.reads.file_content import ReadLimits, Window, digest, human_size, read
from armarium.capabilities.sandbox.roots import Root, Roots
from armarium.capabilities.sandbox.search.grep import Query
from armarium.capabilities.sandbox.search.root_search import NameQuery, Scope, glob_root, grep_root
from armarium.capabilities.sandbox.threads.pool import expect_bytes
from armarium.capabilities.sandbox.threads.workers import Workers
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.events import Events, FileChanged, FileMoved
from armarium.foundation.files.directory_locks import DirectoryLocks
from armarium.foundation.files.errors import FileError, IsADirectory, NotADirectory
from armarium.foundation.files.names import escape_name
from armarium.foundation.refs import FileRef
from armarium.foundation.tools import Call, render_error

_MOST_REMAINING = 100
_MOST_BYTES_TOGETHER = 16 * 1024 * 1024


class Sandbox:
    """Files and folders of the named roots, and nothing outside them."""

    def __init__(
        self,
        roots: Roots,
        workers: Workers,
        events: Events,
        limits: ReadLimits,
        search_seconds: int,
        lock_seconds: float = 10.0,
    ) -> None:
        self._roots = roots
        self._workers = workers
        self._events = events
        self._limits = limits
        self._search_seconds = search_seconds
        self._locks = DirectoryLocks(long_patience_s=lock_seconds)
        self.turns = Turns(lock_seconds)
        self._following = anyio.Lock()

    async def follow(self, root: Root) -> None:
        """Serve the directory that is now at the path of a root."""
        async with self._following:
            # Not in a worker: those may be locked out of the new directory.
            if await anyio.to_thread.run_sync(root.reopen):
                self._workers.renew(*self._roots.granted())
                await self._workers.run("", root.confirm_replaced)

    def list_roots(self) -> results.RootList:
        """Names and allowed tools; never a host path."""
        roots = [
            results.RootInfo(name=root.name, allowed_tools=root.effective_tools(), read_only=root.read_only)
            for root in self._roots
        ]
        return results.RootList(roots=roots, count=len(roots))

    @repeated
    async def list_folder(
        self, call: Call, root_name: str, path: str, limit: int | None, cursor: str | None
    ) -> results.Folder:
        root = self._roots.enter(root_name, "list_folder", path)

        def work() -> results.Folder:
            with checked_path(root, path, what="directory") as normal:
                return metadata.list_folder(root, normal, limit, cursor)

        return await self._workers.run(call.caller, work)

    @repeated
    async def read_file(
        self, call: Call, root_name: str, path: str, window: Window, *, number_lines: bool
    ) -> results.FileContent:
        root = self._roots.enter(root_name, "read_file", path)
        return await self._workers.run(call.caller, self._read, call, root, path, window, number_lines)

    def _read(self, call: Call, root: Root, path: str, window: Window, number_lines: bool) -> results.FileContent:
        with checked_path(root, path) as normal, self._opened(root, normal, window) as (fd, status):
            content = read(fd, status.st_size, window, self._limits, call.cancellation, number_lines=number_lines)
        return results.FileContent(root=root.name, path=escape_name(normal), **content)  # pyright: ignore[reportCallIssue] no overlap

    @contextmanager
    def _opened(self, root: Root, path: str, window: Window) -> Generator[tuple[int, os.stat_result]]:
        window.check()
        with root.confined.opened_regular(path) as (fd, status):
            if root.ignore:
                root.require_visible(root.confined.locate(fd, last_known=True))
            yield fd, status

    @repeated
    async def read_files(self, call: Call, root_name: str, paths: Sequence[str]) -> results.FileContents:
        root = self._roots.enter(root_name, "read_file", paths[0])

        def work() -> list[results.FileContent | results.FailedRead]:
            files: list[results.FileContent | results.FailedRead] = []
            denials: list[FileError] = []
            room = _MOST_BYTES_TOGETHER
            for path in paths:
                expect_bytes(_MOST_BYTES_TOGETHER - room)
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
                        denials.append(error)
                    files.append(results.FailedRead(path=path, error=render_error(error)["error"]))
            call.denials.extend(denials)
            return files

        files = await self._workers.run(call.caller, work)
        return results.FileContents(root=root.name, files=files, count=len(files))

    @repeated
    async def write_file(
        self, call: Call, root_name: str, path: str, content: str, mode: str, if_match: str | None
    ) -> results.Written:
        root = self._roots.enter(root_name, "write_file", path, writing=True)

        def work() -> tuple[str, writes.Replaced]:
            with checked_path(root, path) as normal:
                _require_file_path(path)
                encoded = _encoded(content, "content")

                def write(place: Place) -> writes.Replaced:
                    return writes.write(place, encoded, mode, if_match, self._locks, call.cancellation)

                return normal, in_place(root, normal, path, write, make_parents=if_match is None)

        normal, result = await self._workers.change(call.caller, work)
        await self._changed(call, root, normal, "created" if result.created else "modified")
        answer = results.Written(
            root=root.name, path=escape_name(normal), size=result.size, mode=mode, created=result.created
        )
        if result.sha256 is not None:
            answer["sha256"] = result.sha256
        return answer

    @repeated
    async def remove_file(self, call: Call, root_name: str, path: str, if_match: str | None) -> results.Removed:
        root = self._roots.enter(root_name, "remove_file", path, writing=True)

        def work() -> str:
            with checked_path(root, path) as normal:
                removal.remove_file(root, normal, if_match, self._locks, call.cancellation)
                return normal

        normal = await self._workers.change(call.caller, work)
        await self._changed(call, root, normal, "removed")
        return results.Removed(root=root.name, path=escape_name(normal), removed=True)

    @repeated
    async def patch_file(
        self, call: Call, root_name: str, path: str, patch: str, if_match: str | None, *, dry_run: bool
    ) -> results.Patched:
        root = self._roots.enter(root_name, "patch_file", path, writing=True)
        # Where reading is not allowed, a failing patch must not read the file out line by line.
        may_read = "read_file" in root.allowed_tools

        def answered(before: bytes | None, result: PatchResult, normal: str) -> results.Patched:
            answer = results.Patched(
                root=root.name,
                path=escape_name(normal),
                hunks_applied=result.hunks_applied,
                created=result.created,
                size=len(result.content),
                sha256=writes.sha256(result.content),
                dry_run=dry_run,
            )
            if dry_run and may_read:
                answer["diff"] = unified_diff(before, result.content, normal)
            return answer

        def work() -> tuple[str, results.Patched]:
            diff = _encoded(patch, "patch")
            with checked_path(root, path) as normal:
                _require_file_path(path)
                if dry_run and if_match is None and not has_parent(root, normal):
                    return normal, answered(None, apply_patch(None, diff), normal)

                def apply(place: Place) -> tuple[bytes | None, PatchResult]:
                    return writes.patch(
                        place, diff, if_match, self._locks, call.cancellation, reveal=may_read, dry_run=dry_run
                    )

                make_parents = not dry_run and if_match is None
                before, result = in_place(root, normal, path, apply, make_parents=make_parents)
                return normal, answered(before, result, normal)

        normal, answer = await self._workers.change(call.caller, work)
        if not dry_run:
            await self._changed(call, root, normal, "created" if answer["created"] else "modified")
        return answer

    @repeated
    async def create_folder(self, call: Call, root_name: str, path: str) -> results.FolderCreated:
        root = self._roots.enter(root_name, "create_folder", path, writing=True)

        def work() -> tuple[str, bool]:
            with checked_path(root, path, what="directory") as normal:
                existed = _is_directory(root, normal)
                if root.ignore:
                    root.require_visible(root.resolved(normal), is_directory=True)
                if not existed:
                    os.close(root.confined.make_directories(normal))
                return normal, existed

        normal, existed = await self._workers.change(call.caller, work)
        if not existed:
            await self._changed(call, root, normal, "created", is_directory=True)
        return results.FolderCreated(root=root.name, path=escape_name(normal), created=True, existed=existed)

    @repeated
    async def remove_folder(self, call: Call, root_name: str, path: str) -> results.Removed:
        root = self._roots.enter(root_name, "remove_folder", path, writing=True)

        def work() -> tuple[str, int]:
            with checked_path(root, path, what="directory") as normal:
                return normal, removal.remove_folder(root, normal, self._locks, call.cancellation)

        normal, removed = await self._workers.long(call.caller, work)
        await self._changed(call, root, normal, "removed", is_directory=True)
        return results.Removed(root=root.name, path=escape_name(normal), removed=True, entries_removed=removed)

    @repeated
    async def stat_file(self, call: Call, root_name: str, path: str, *, include_sha256: bool) -> results.Metadata:
        root = self._roots.enter(root_name, "stat_file", path)

        def work() -> results.Metadata:
            with checked_path(root, path) as normal:
                found = metadata.metadata(root, normal)
                if include_sha256 and "file" in (found["type"], found.get("target", {}).get("type")):
                    with self._opened(root, normal, Window()) as (fd, status):
                        expect_bytes(status.st_size)
                        found["sha256"] = digest(fd, "sha256", call.cancellation)
                return found

        return await self._workers.run(call.caller, work)

    @repeated
    async def hash_file(self, call: Call, root_name: str, path: str, algorithm: str) -> results.Hash:
        root = self._roots.enter(root_name, "hash_file", path)

        def work() -> results.Hash:
            with checked_path(root, path) as normal, self._opened(root, normal, Window()) as (fd, status):
                expect_bytes(status.st_size)
                return results.Hash(
                    root=root.name,
                    path=escape_name(normal),
                    algorithm=algorithm,
                    hash=digest(fd, algorithm, call.cancellation),
                    size=status.st_size,
                )

        return await self._workers.run(call.caller, work)

    @repeated
    async def permissions_file(self, call: Call, root_name: str, path: str) -> results.Permissions:
        root = self._roots.enter(root_name, "permissions_file", path)

        def work() -> results.Permissions:
            with checked_path(root, path) as normal:
                return metadata.permissions(root, normal)

        return await self._workers.run(call.caller, work)

    @repeated
    async def copy(
        self, call: Call, source: tuple[str, str], target: tuple[str, str], if_match: str | None
    ) -> results.Copied:
        from_root = self._roots.enter(source[0], "copy", source[1])
        into_root = self._roots.enter(target[0], "copy", target[1], writing=True)

        def work() -> tuple[str, copies.Transferred]:
            with checked_path(from_root, source[1], what="source file") as path:
                found = copies.copy_source(from_root, path)
            with checked_path(into_root, target[1]) as wanted:
                if not found.is_directory:
                    _require_directory_if_slash(into_root, target[1], wanted)
                return path, copies.copy(found, into_root, wanted, if_match, self._locks, call.cancellation)

        path, done = await self._workers.transfer(call.caller, work)
        await self._changed(
            call,
            into_root,
            done.destination,
            "modified" if done.replaced else "created",
            is_directory=done.is_directory,
        )
        return results.Copied(
            source=str(from_root.ref(path)),
            destination=str(into_root.ref(done.destination)),
            is_directory=done.is_directory,
            size=done.size,
            files_copied=done.files,
            skipped=[escape_name(skipped) for skipped in done.skipped],
        )

    @repeated
    async def move(
        self, call: Call, source: tuple[str, str], target: tuple[str, str], if_match: str | None
    ) -> results.Moved:
        from_root = self._roots.enter(source[0], "move", source[1], writing=True)
        into_root = self._roots.enter(target[0], "move", target[1], writing=True)

        def work() -> tuple[str, copies.Transferred]:
            with checked_path(from_root, source[1], what="source file") as path:
                is_directory = moves.require_movable_source(from_root, path)
            with checked_path(into_root, target[1]) as wanted:
                if not is_directory:
                    _require_directory_if_slash(into_root, target[1], wanted)
                return path, moves.move(from_root, path, into_root, wanted, if_match, self._locks, call.cancellation)

        path, done = await self._workers.transfer(call.caller, work)
        with anyio.CancelScope(shield=True):  # all of it is told, or listeners would think that a file is gone
            if not done.remaining:
                await self._moved(call, from_root, path, into_root, done)
            change = "modified" if done.remaining else "removed"
            await self._changed(call, from_root, path, change, is_directory=done.is_directory)
            await self._changed(
                call,
                into_root,
                done.destination,
                "modified" if done.replaced else "created",
                is_directory=done.is_directory,
            )
        answer = results.Moved(source=str(from_root.ref(path)), destination=str(into_root.ref(done.destination)))
        if done.remaining:
            answer["complete"] = False
            answer["remaining_count"] = len(done.remaining)
            answer["remaining"] = [
                results.Remaining(path=escape_name(left.path), reason=left.reason)
                for left in done.remaining[:_MOST_REMAINING]
            ]
        return answer

    @repeated
    async def grep(self, call: Call, root_name: str, path: str, query: Query, scope: Scope) -> results.Matches:
        root = self._roots.enter(root_name, "grep", path)
        until = self._search_end(scope)
        return await self._workers.search(call.caller, grep_root, root, path, query, scope, until, call.cancellation)

    @repeated
    async def glob(self, call: Call, root_name: str, path: str, query: NameQuery, scope: Scope) -> results.FoundFiles:
        root = self._roots.enter(root_name, "glob", path)
        if (query.pattern is None) == (query.regex is None):
            raise InvalidArgument("exactly one of `pattern` or `regex` must be provided")
        until = self._search_end(scope)
        return await self._workers.search(call.caller, glob_root, root, path, query, scope, until, call.cancellation)

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

    async def _moved(self, call: Call, from_root: Root, path: str, into_root: Root, done: copies.Transferred) -> None:
        ref, previous = into_root.ref(done.destination), from_root.ref(path)
        places = _host_path(into_root, ref), _host_path(from_root, previous)
        await self._events.publish(FileMoved(ref, previous, *places, done.is_directory, call.principal))


def _host_path(root: Root, ref: FileRef) -> str:
    return f"{root.confined.real_path}/{ref.path.lstrip('/')}"


def _require_file_path(path: str) -> None:
    if path.endswith(("/", "/.")):
        raise IsADirectory("a path that ends with a slash names a directory", hint="name the file")


def _require_directory_if_slash(root: Root, path: str, normal: str) -> None:
    """A file that is to go to `archive/` is not to become a file of that name."""
    if path.endswith("/") and not _is_directory(root, normal):
        raise NotADirectory("there is no such directory", hint="create_folder makes one")


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
    raise NotADirectory(f"path exists as a file, not a directory: {escape_name(path)}")
