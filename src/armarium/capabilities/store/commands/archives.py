"""`armarium store export` and `import`: the files of a caller in a tar archive."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import BinaryIO

import anyio
import typer
from prometheus_client import CollectorRegistry

from armarium.capabilities.store.lifespan import build_store, open_resources
from armarium.capabilities.store.settings import RateSettings, StoreSettings
from armarium.capabilities.store.transfer import Import, Imported, Skipped, export_files
from armarium.command_line.host import CommandHost
from armarium.command_line.output import FAILED, Misuse, count, printable, say, show_json
from armarium.foundation.authentication import principals, token_path
from armarium.foundation.errors import ConfigError
from armarium.foundation.identity import LOCAL, Authenticator, Principal, read_token
from armarium.foundation.schema import Json
from armarium.foundation.settings import CoreSettings
from armarium.foundation.tasks import background
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


def export_archive(
    host: CommandHost,
    settings: CoreSettings,
    section: StoreSettings,
    file: Path,
    project: str,
    caller: Call,
    *,
    as_json: bool,
) -> None:
    with _output(file) as out:

        async def store_export(call: Call, args: _ExportArgs) -> Json:
            """Write the files of a caller to a tar archive."""
            tenant = call.principal.apikey_hash
            return await write_archive(section, settings.state_path(), tenant, args.project, out)

        tool = local_tool("store_export", store_export, subject=("project", "file"))
        arguments = {"project": project, "file": str(file)}
        run = partial(host.call, "store", tool, arguments, settings=settings, call=caller)
        done = anyio.run(run, backend_options={"use_uvloop": True})
    if not as_json:
        files, size, projects = count(done["files"], "file"), count(done["bytes"], "byte"), done["projects"]
        say(f"{files}, {size}, of {count(projects, 'project')}")
    elif file == STANDARD_STREAM:
        # Standard output is the archive.
        say(json.dumps(done))
    else:
        show_json(done | {"file": str(file)})


def import_archive(
    host: CommandHost,
    settings: CoreSettings,
    section: StoreSettings,
    file: Path,
    project: str | None,
    caller: Call,
    *,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Import a tar archive for a caller; exits with 1 if a member was skipped."""
    skipped: list[Json] = []

    def on_skipped(member: Skipped) -> None:
        skipped.append(asdict(member))
        if not as_json:
            say(f"skipped {printable(member.member)}: {member.reason} ({member.code})")

    with _input(file) as source:

        async def store_import(call: Call, args: _ImportArgs) -> Json:
            """Import a tar archive for a caller."""
            imported = await read_archive(
                section,
                settings.state_path(),
                call,
                source,
                project=args.project,
                overwrite=args.overwrite,
                on_skipped=on_skipped,
            )
            return asdict(imported)

        tool = local_tool("store_import", store_import, subject=("project", "file"))
        arguments = {"overwrite": overwrite, "file": str(file)} | ({"project": project} if project else {})
        run = partial(host.call, "store", tool, arguments, settings=settings, call=caller)
        done = anyio.run(run, backend_options={"use_uvloop": True})
    if as_json:
        show_json(done | {"skipped": skipped})
    else:
        say(f"{count(done['written'], 'file')} written, {done['unchanged']} unchanged, {done['skipped']} skipped")
    if done["written"] and section.needs_callers_keys and not (caller.credential and section.redis_url):
        say("note: files are embedded with the caller's key, which is not available now; the next write indexes them")
    if done["skipped"]:
        raise typer.Exit(FAILED)


async def write_archive(section: StoreSettings, state_dir: Path, tenant: str, project: str, out: BinaryIO) -> Json:
    async with open_resources(section, state_dir, CollectorRegistry()) as resources:
        return await export_files(resources.database, tenant, project, out)


async def read_archive(
    section: StoreSettings,
    state_dir: Path,
    call: Call,
    source: BinaryIO,
    *,
    project: str | None,
    overwrite: bool,
    on_skipped: Callable[[Skipped], None],
) -> Imported:
    """Import a tar archive for a caller; servers and workers index it."""
    largest = section.max_file_bytes
    # A member is one write, whatever its size, and operators are exempt from the rate limit.
    section = section.model_copy(update={"max_payload_bytes": largest, "rate": _UNLIMITED})
    async with (
        open_resources(section, state_dir, CollectorRegistry()) as resources,
        background(resources.wake_up.notify_others),
    ):
        archive = Import(
            build_store(resources),
            resources.database,
            call,
            project=project,
            overwrite=overwrite,
            max_file_bytes=largest,
            on_skipped=on_skipped,
        )
        return await archive.run(source)


def caller_of(settings: CoreSettings, user: str | None, key_file: Path | None) -> Call:
    """The caller with the key in a file, or with a name in the settings, or the owner of the server's token."""
    known = principals(settings)
    if user is not None and key_file is not None:
        raise Misuse("--user and --key-file exclude each other", hint="a key determines its owner")
    if key_file is not None:
        return _owner_of(read_token(key_file), known, settings)
    if user is None:
        own_token = token_path(settings)
        if own_token is not None:
            return _owner_of(read_token(own_token), known, settings)
        if settings.security.auth == "none":
            return Call(known[0])
        raise Misuse("there are several callers", hint="choose one with --user or --key-file")
    named = [principal for principal in known if principal.username == user]
    if not named and user == LOCAL.username:
        return Call(LOCAL)
    if not named:
        raise ConfigError("no caller with this name is configured", hint="see security.keys")
    if len(named) > 1:
        raise Misuse("this user has several keys, each with files of its own", hint="choose one with --key-file")
    return Call(named[0])


def _owner_of(key: str, known: list[Principal], settings: CoreSettings) -> Call:
    open_to_anyone = settings.security.auth == "none"
    principal = Authenticator(known, open_to_anyone=open_to_anyone).identify(key)
    if principal is None:
        raise ConfigError("no caller with this key is configured", hint="see security.keys")
    return Call(principal, credential=key)


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
