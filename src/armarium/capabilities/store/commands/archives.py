"""`armarium store export`, `import` and `purge`: a tar archive of files of a caller, and the end of their history."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

import typer
from prometheus_client import CollectorRegistry

from armarium.capabilities.store.arguments import PurgeArgs
from armarium.capabilities.store.commands.operation import Operation
from armarium.capabilities.store.lifespan import build_store, open_resources
from armarium.capabilities.store.model import Purged
from armarium.capabilities.store.settings import RateSettings, StoreSettings
from armarium.capabilities.store.transfer import Import, Imported, Skipped, export_files
from armarium.command_line.output import FAILED, Misuse, count, printable, say, show_json
from armarium.foundation.concurrency.tasks import background
from armarium.foundation.schema import Json
from armarium.foundation.tools import Args, Call, local_tool

STANDARD_STREAM = Path("-")
"""Standard input or output, in place of a file."""
_UNLIMITED = RateSettings(calls_per_second=1e9, burst=10**9)


class _ExportArgs(Args):
    project: str
    file: str


class _ImportArgs(Args):
    project: str | None = None
    overwrite: bool
    file: str


def export_archive(operation: Operation, file: Path, project: str, caller: Call) -> None:
    with _output(file) as out:

        async def store_export(call: Call, args: _ExportArgs) -> Json:
            """Write the files of a caller to a tar archive."""
            async with open_resources(operation.section, operation.state_dir, CollectorRegistry()) as resources:
                return await export_files(resources.database, call.principal.apikey_hash, args.project, out)

        tool = local_tool("store_export", store_export, subject=("project", "file"))
        done = operation.call(tool, {"project": project, "file": str(file)}, caller)
    if not operation.as_json:
        files, size, projects = count(done["files"], "file"), count(done["bytes"], "byte"), done["projects"]
        say(f"{files}, {size}, of {count(projects, 'project')}")
    elif file == STANDARD_STREAM:
        # Standard output is the archive.
        say(json.dumps(done))
    else:
        show_json(done | {"file": str(file)})


def import_archive(operation: Operation, file: Path, project: str | None, caller: Call, *, overwrite: bool) -> None:
    """Import a tar archive for a caller; exits with 1 if a member was skipped."""
    section, skipped = operation.section, list[Json]()

    def on_skipped(member: Skipped) -> None:
        skipped.append(asdict(member))
        if not operation.as_json:
            say(f"skipped {printable(member.member)}: {member.reason} ({member.code})")

    with _input(file) as source:

        async def store_import(call: Call, args: _ImportArgs) -> Json:
            """Import a tar archive for a caller."""
            archive = Import(call, args.project, args.overwrite, section.max_file_bytes, on_skipped)
            return asdict(await read_archive(archive, source, section, operation.state_dir))

        tool = local_tool("store_import", store_import, subject=("project", "file"))
        arguments = {"overwrite": overwrite, "file": str(file)} | ({"project": project} if project else {})
        done = operation.call(tool, arguments, caller)
    if operation.as_json:
        show_json(done | {"skipped": skipped})
    else:
        say(f"{count(done['written'], 'file')} written, {done['unchanged']} unchanged, {done['skipped']} skipped")
    if done["written"] and section.needs_callers_keys and not (caller.credential and section.redis_url):
        say("note: files are embedded with the caller's key, which is not available now; the next write indexes them")
    if done["skipped"]:
        raise typer.Exit(FAILED)


async def read_archive(archive: Import, source: BinaryIO, section: StoreSettings, state_dir: Path) -> Imported:
    """Import a tar archive; servers and workers index it."""
    # A member is one write, whatever its size, and operators are exempt from the rate limit.
    section = section.model_copy(update={"max_payload_bytes": section.max_file_bytes, "rate": _UNLIMITED})
    async with (
        open_resources(section, state_dir, CollectorRegistry()) as resources,
        background(resources.wake_up.notify_others),
    ):
        return await archive.run(source, build_store(resources), resources.database)


def purge(operation: Operation, project: str, path: str, caller: Call) -> None:
    """Purge a path of a caller's project, and print how much it was."""

    async def store_purge(call: Call, args: PurgeArgs) -> Purged:
        """Delete earlier versions and deleted files for good."""
        async with open_resources(operation.section, operation.state_dir, CollectorRegistry()) as resources:
            return await build_store(resources).purge(call, args)

    tool = local_tool("store_purge", store_purge, subject=("project", "path"))
    done = operation.call(tool, {"project": project, "path": path}, caller)
    if operation.as_json:
        show_json(done)
        return
    versions, files = count(done["purged_versions"], "version"), count(done["purged_files"], "deleted file")
    say(f"purged {versions} and {files}, {count(done['purged_bytes'], 'byte')}")


@contextmanager
def _output(file: Path) -> Generator[BinaryIO]:
    """A file with mode 600 that is created atomically, or standard output."""
    if file == STANDARD_STREAM:
        if sys.stdout.isatty():
            raise Misuse("an archive cannot be written to a terminal", hint="name a file, or use a pipe")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    staged = file.with_name(f".{file.name}.{secrets.token_hex(6)}")
    try:
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Misuse(f"{file} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(staged, file)
    except BaseException:
        os.unlink(staged)
        raise


@contextmanager
def _input(file: Path) -> Generator[BinaryIO]:
    if file == STANDARD_STREAM:
        yield sys.stdin.buffer
        return
    try:
        source = file.open("rb")
    except OSError as error:
        raise Misuse(f"{file} cannot be read: {error.strerror}") from error
    with source:
        yield source
