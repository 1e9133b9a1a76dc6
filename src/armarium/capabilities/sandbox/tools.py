"""The sandbox's tools. Their docstrings are the descriptions that models read."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

import orjson

from armarium.capabilities.sandbox import arguments, results
from armarium.capabilities.sandbox.changes import copies, edits, moves, removal
from armarium.capabilities.sandbox.reads import root_files
from armarium.capabilities.sandbox.reads.file_content import Window
from armarium.capabilities.sandbox.search.root_search import glob_root, grep_root
from armarium.capabilities.sandbox.service import Sandbox
from armarium.foundation.files.names import escape_name
from armarium.foundation.schema import Json, JsonSchema
from armarium.foundation.security.access import Access
from armarium.foundation.tools import Call, DeclaredTool, NoArgs, ToolSpec, bind_tools, declare_tool

_SEARCH_GRACE_S = 30.0
_MAX_REMAINING = 100
_INTEGER = re.compile(r"-?[0-9]{1,16}")
_BOOLEANS = {"true": True, "false": False}


async def list_roots(sandbox: Sandbox, call: Call, args: NoArgs) -> results.RootList:
    """List the roots: the named directories you can work in, and which tools each allows. Call this first;
    every other tool takes one of these names as `root`."""
    roots = [
        results.RootInfo(name=root.name, allowed_tools=root.effective_tools(call.principal), read_only=root.read_only)
        for root in sandbox.roots
    ]
    return results.RootList(roots=roots, count=len(roots))


async def list_folder(sandbox: Sandbox, call: Call, args: arguments.ListFolderArgs) -> results.Folder:
    """List the immediate children of a directory, sorted by name, with type, size and modification time. A
    symlink also has the type of its target. For a recursive listing use glob. Large directories can be paged
    with `limit` and `cursor`."""
    root = sandbox.roots.enter(args.root, "list_folder", args.path)
    return await sandbox.workers.run(call.caller, root_files.list_folder, root, args.path, args.limit, args.cursor)


async def read_file(sandbox: Sandbox, call: Call, args: arguments.ReadFileArgs) -> results.FileContent:
    """Read a file: whole if it is small, or a part by bytes (`offset_bytes`, `limit_bytes`), by lines
    (`offset_lines` from 1, `limit_lines`) or from the end (`tail_lines`). The result has the file's size, its
    total lines, the numbers of the first and last line returned, whether more follows (`truncated`), and for
    a whole file its `sha256`, which `if_match` of the writing tools takes. Binary content comes as base64
    (`encoding`). Use grep to find the place first when the file is large."""
    window = Window(args.offset_bytes, args.limit_bytes, args.offset_lines, args.limit_lines, args.tail_lines)
    root = sandbox.roots.enter(args.root, "read_file", args.path)
    given = root, args.path, window, sandbox.limits, call.cancellation, args.number_lines
    return await sandbox.workers.run(call.caller, root_files.read_file, *given)


async def read_files(sandbox: Sandbox, call: Call, args: arguments.ReadFilesArgs) -> results.FileContents:
    """Read several whole files of one root in one call. Each item of the result is a file as read_file returns
    it, or its path with an error. Requires read_file on the root."""
    root = sandbox.roots.enter(args.root, "read_file", args.paths[0])
    given = root, args.paths, sandbox.limits, call.cancellation
    files, denials = await sandbox.workers.run(call.caller, root_files.read_files, *given)
    call.denials.extend(denials)
    return results.FileContents(root=root.name, files=files, count=len(files))


async def write_file(sandbox: Sandbox, call: Call, args: arguments.WriteFileArgs) -> results.Written:
    """Write text to a file. `mode` overwrite (the default) replaces it, append adds to its end, create_only
    fails if it exists. Missing parent directories are created. A failed write changes nothing. Pass `if_match` to
    fail if the file has changed since you read it. For small changes prefer patch_file."""
    root = sandbox.roots.enter(args.root, "write_file", args.path, writing=True)
    given = root, args.path, args.content, args.mode, sandbox.context(call, args.if_match)
    path, result = await sandbox.workers.change(call.caller, edits.write_file, *given)
    await sandbox.events.changed(call.principal, root, path, "created" if result["created"] else "modified")
    return result


async def remove_file(sandbox: Sandbox, call: Call, args: arguments.RemoveFileArgs) -> results.Removed:
    """Delete one file. A symlink is deleted itself, not what it leads to. For directories use remove_folder."""
    root = sandbox.roots.enter(args.root, "remove_file", args.path, writing=True)
    context = sandbox.context(call, args.if_match)
    path = await sandbox.workers.change(call.caller, removal.remove_file, root, args.path, context)
    await sandbox.events.changed(call.principal, root, path, "removed")
    return results.Removed(root=root.name, path=escape_name(path), removed=True)


async def patch_file(sandbox: Sandbox, call: Call, args: arguments.PatchFileArgs) -> results.Patched:
    """Apply a unified diff (`--- +++ @@` with context lines, as `git diff` prints it) to one file. All hunks
    apply or nothing changes. A file that does not exist is created. The error names the hunk and the line that
    did not match; then read the file again and make a new diff. `dry_run` only checks."""
    root = sandbox.roots.enter(args.root, "patch_file", args.path, writing=True)
    given = root, args.path, args.patch, sandbox.context(call, args.if_match), args.dry_run
    path, result = await sandbox.workers.change(call.caller, edits.patch_file, *given)
    if not args.dry_run:
        await sandbox.events.changed(call.principal, root, path, "created" if result["created"] else "modified")
    return result


async def create_folder(sandbox: Sandbox, call: Call, args: arguments.AtPath) -> results.FolderCreated:
    """Create a directory, with missing parents. One that exists already is fine."""
    root = sandbox.roots.enter(args.root, "create_folder", args.path, writing=True)
    path, existed = await sandbox.workers.change(call.caller, edits.create_folder, root, args.path)
    if not existed:
        await sandbox.events.changed(call.principal, root, path, "created", is_directory=True)
    return results.FolderCreated(root=root.name, path=escape_name(path), created=True, existed=existed)


async def remove_folder(sandbox: Sandbox, call: Call, args: arguments.AtPath) -> results.Removed:
    """Delete a directory and everything in it. Links inside are deleted, never followed. The root itself cannot
    be deleted. For a single file use remove_file."""
    root = sandbox.roots.enter(args.root, "remove_folder", args.path, writing=True)
    given = root, args.path, sandbox.context(call)
    path, removed = await sandbox.workers.long(call.caller, removal.remove_folder, *given)
    await sandbox.events.changed(call.principal, root, path, "removed", is_directory=True)
    return results.Removed(root=root.name, path=escape_name(path), removed=True, entries_removed=removed)


async def stat_file(sandbox: Sandbox, call: Call, args: arguments.StatFileArgs) -> results.Metadata:
    """Get the metadata of a file or directory: type, size, modification and creation time. For a
    symlink: the link itself, and its `target`. `include_sha256` adds the content's hash for `if_match`."""
    root = sandbox.roots.enter(args.root, "stat_file", args.path)
    given = root, args.path, args.include_sha256, call.cancellation
    return await sandbox.workers.run(call.caller, root_files.stat_file, *given)


async def hash_file(sandbox: Sandbox, call: Call, args: arguments.HashFileArgs) -> results.Hash:
    """Compute the md5, sha1 or sha256 of a file's content, of any size."""
    root = sandbox.roots.enter(args.root, "hash_file", args.path)
    given = root, args.path, args.algorithm, call.cancellation
    return await sandbox.workers.run(call.caller, root_files.hash_file, *given)


async def permissions_file(sandbox: Sandbox, call: Call, args: arguments.AtPath) -> results.Permissions:
    """Get owner, group and mode (`0644`, `-rw-r--r--`) of a file, directory or symlink."""
    root = sandbox.roots.enter(args.root, "permissions_file", args.path)
    return await sandbox.workers.run(call.caller, root_files.permissions, root, args.path)


async def copy(sandbox: Sandbox, call: Call, args: arguments.TransferArgs) -> results.Copied:
    """Copy a file, or a directory with everything in it, within a root or to another one. An existing file is
    overwritten; an existing directory gets the copy inside. Links that stay inside the root stay links; what
    could not be copied is listed in `skipped`."""
    source, path, target, done = await sandbox.transfer(call, args, "copy", copies.copy)
    await sandbox.events.copied(call.principal, target, done)
    return results.Copied(
        source=str(source.ref(path)),
        destination=str(target.ref(done.destination)),
        is_directory=done.is_directory,
        size=done.size,
        files_copied=done.files,
        skipped=[escape_name(skipped) for skipped in done.skipped],
    )


async def move(sandbox: Sandbox, call: Call, args: arguments.TransferArgs) -> results.Moved:
    """Move or rename a file or directory, within a root or to another one. An existing file is overwritten; an
    existing directory gets the source inside. A symlink is moved itself. If the result has `complete: false`,
    `remaining` lists what stayed at the source, and why."""
    source, path, target, done = await sandbox.transfer(call, args, "move", moves.move)
    await sandbox.events.moved(call.principal, source, path, target, done)
    result = results.Moved(source=str(source.ref(path)), destination=str(target.ref(done.destination)))
    if done.remaining:
        result["complete"] = False
        result["remaining_count"] = len(done.remaining)
        result["remaining"] = done.remaining[:_MAX_REMAINING]
    return result


async def grep(sandbox: Sandbox, call: Call, args: arguments.GrepArgs) -> results.Matches:
    """Search the content of files for a regular expression (RE2 syntax, line by line) and get file, line number,
    line and context. Narrow the search with `path` and `glob_filter`. Binary files are skipped. Results come
    in path order; `truncated` means there are more, from `next_offset` on; `timed_out` that time ran out. With
    `output_mode` files or count you get the files that match, without their lines."""
    return await sandbox.search(call, args, "grep", grep_root)


async def glob(sandbox: Sandbox, call: Call, args: arguments.GlobArgs) -> results.FoundFiles:
    """Find files and directories by name: a glob `pattern` such as `**/*.go`, or a `regex` on the path. Results
    come in path order with type, size and modification time; paths are relative to the root. `truncated` means
    that there are more, from `next_offset` on."""
    return await sandbox.search(call, args, "glob", glob_root)


def _declared(
    name: str, function: Callable[[Sandbox, Call, Any], Awaitable[Any]], **traits: Any
) -> DeclaredTool[Sandbox]:
    @wraps(function)
    async def run(sandbox: Sandbox, call: Call, args: Any) -> Any:
        of_caller = sandbox.for_caller(call.principal)
        return await sandbox.retried(lambda: function(of_caller, call, args))

    tool = declare_tool(name, run, **traits)
    description, schema = tool.spec.description, tool.spec.input_schema
    # Every description says that the root is required, for models that read only one of them.
    if names := [f"`{name}`" for name in schema.get("properties", {}) if name.endswith("root")]:
        verb = "is the name" if len(names) == 1 else "are names"
        description += f" Required: {' and '.join(names)} {verb} of a root from list_roots."
    return replace(tool, spec=replace(tool.spec, description=description, completed=_coerced(schema)))


def _coerced(schema: JsonSchema) -> Callable[[Call, Mapping[str, Any]], Mapping[str, Any]]:
    """A function that converts strings to the integers and booleans that the schema asks for: models write "2" for 2.

    Strings that cannot be converted stay, and fail validation.
    """
    types = {name: described.get("type") for name, described in schema.get("properties", {}).items()}
    converted = {name: kind for name, kind in types.items() if kind in ("integer", "boolean")}

    def convert(call: Call, given: Mapping[str, Any]) -> Mapping[str, Any]:
        texts = {name: kind for name, kind in converted.items() if isinstance(given.get(name), str)}
        return {**given, **{name: _value(given[name], kind) for name, kind in texts.items()}} if texts else given

    return convert


def _value(text: str, kind: str) -> int | str:
    if kind == "boolean":
        return _BOOLEANS.get(text.strip().lower(), text)
    return int(text) if _INTEGER.fullmatch(text.strip()) else text


def _roots_as_array(result: Json) -> list[str]:
    """The roots as a JSON array, which the contract requires (FR-003) and structured content cannot be."""
    return [orjson.dumps(result["roots"]).decode()]


def _content_then_metadata(result: Json) -> list[str]:
    """The content as it is, then everything else as JSON."""
    facts = {name: value for name, value in result.items() if name != "content"}
    return [result["content"], orjson.dumps(facts).decode()]


def _search_deadline(given: Mapping[str, Any]) -> float:
    """Later than the search's own timeout: a search that times out returns what it found."""
    return float(given.get("timeout_seconds", 300)) + _SEARCH_GRACE_S


_READS = {"read_only": True, "idempotent": True}
_SEARCHES = _READS | {"deadline_s": _search_deadline, "is_search": True}
_TRANSFERS = {"subject": ("source_root", "source_path")}

TOOLS = (
    _declared("list_roots", list_roots, title="List roots", text=_roots_as_array, **_READS),
    _declared("list_folder", list_folder, title="List a folder", **_READS),
    _declared("read_file", read_file, title="Read a file", text=_content_then_metadata, **_READS),
    _declared("read_files", read_files, title="Read several files", **_READS),
    _declared("write_file", write_file, title="Write a file", content_fields=frozenset({"content"})),
    _declared("remove_file", remove_file, title="Remove a file"),
    _declared("patch_file", patch_file, title="Patch a file", content_fields=frozenset({"patch"})),
    _declared("create_folder", create_folder, title="Create a folder", idempotent=True),
    _declared("remove_folder", remove_folder, title="Remove a folder"),
    _declared("stat_file", stat_file, title="File metadata", **_READS),
    _declared("hash_file", hash_file, title="Hash a file", **_READS),
    _declared("permissions_file", permissions_file, title="File permissions", **_READS),
    _declared("copy", copy, title="Copy", **_TRANSFERS),
    _declared("move", move, title="Move", **_TRANSFERS),
    _declared("grep", grep, title="Search in files", **_SEARCHES),
    _declared("glob", glob, title="Find files", **_SEARCHES),
)


def bound_tools(sandbox: Sandbox, access: Access) -> list[ToolSpec]:
    tools = bind_tools(TOOLS, sandbox, access)
    return [replace(tool, meta=sandbox.restrictions) if tool.name == "list_roots" else tool for tool in tools]
