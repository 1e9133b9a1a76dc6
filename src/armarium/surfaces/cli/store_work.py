"""What `armarium store` does with the store besides serving it."""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import anyio
import typer
from prometheus_client import CollectorRegistry, start_http_server

from armarium.assembly import callers, store_chores, token_path
from armarium.foundation.errors import ConfigError
from armarium.foundation.identity import LOCAL, Authenticator, Principal, read_token
from armarium.foundation.settings import CoreSettings
from armarium.foundation.telemetry import log_as_json
from armarium.foundation.tools import Call
from armarium.surfaces.cli.output import FAILED, Misuse, printable, say, show_json

STANDARD = Path("-")
"""Standard input or output, in place of a file."""

_log = logging.getLogger("armarium")
_Answer = TypeVar("_Answer")


def work(settings: CoreSettings, workers: int | None, metrics_port: int | None, *, as_json: bool) -> None:
    """Index for the servers on the same database, until Ctrl-C or SIGTERM."""
    log_as_json(settings.telemetry.log_level)
    chores = store_chores(settings)
    registry = CollectorRegistry()
    told: dict[str, Any] = {"workers": workers or chores.index_workers}

    def ready() -> None:
        _log.info("indexing", extra=told)
        if as_json:
            show_json(told)

    async def until_signal() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_signal, tasks.cancel_scope)
            await chores.work(told["workers"], registry=registry, on_ready=ready)
        _log.info("stopped")

    if metrics_port is None:
        _run(until_signal)
        return
    with _scraped(registry, settings.server.host, metrics_port) as address:
        told["metrics"] = address
        _run(until_signal)


@contextmanager
def _scraped(registry: CollectorRegistry, host: str, port: int) -> Generator[str]:
    """Show what is counted to Prometheus, at the address it is told."""
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="choose another one with --metrics-port"
        ) from error
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def _cancel_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()


def reindex(settings: CoreSettings, *, yes: bool, wait: bool, as_json: bool) -> None:
    """Make the index anew, after saying what that means."""
    chores = store_chores(settings)
    plan = _run(chores.plan_reindex)
    files, whose = _counted(plan.files, "file"), _counted(plan.callers, "caller")
    say(f"The vectors of {files} of {whose} are forgotten and made anew.")
    if plan.dimensions != plan.wanted_dimensions:
        say(f"They have {plan.dimensions} numbers now, and {plan.wanted_dimensions} with these settings.")
    say("Until a file has its new vectors, it is found by its words alone.")
    if chores.waits_for_callers:
        say("They are made with callers' keys, which only come with a call: each file gets them with its next write.")
    if plan.running:
        say("Servers or workers use the database now; they need these settings, too.")
    _confirm(yes)

    async def again() -> Any:
        return await chores.reindex(wait=wait, on_progress=_told_progress())

    done = _run(again)
    if as_json:
        show_json({"files": plan.files, "dimensions": plan.wanted_dimensions} | asdict(done))
    elif not done.queued:
        say("done; nothing is queued")
    elif not done.complete:
        say(f"queued: {_counted(done.queued, 'file')}; servers and workers index them")
    else:
        failed = f", {done.failed} failed" if done.failed else ""
        say(f"indexed: {_counted(done.queued - done.failed, 'file')}{failed}")
    if done.failed:
        raise typer.Exit(FAILED)


def _confirm(yes: bool) -> None:
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Misuse("nobody is there to be asked, so nothing was changed", hint="say --yes")
    try:
        typer.confirm("Go on?", default=False, abort=True, err=True)
    except typer.Abort:
        say("stopped; nothing was changed")
        raise


def _told_progress() -> Callable[[int, int], None]:
    """Tells a person at a terminal about every tenth of the work; a log or a pipe hears nothing."""
    told = -1

    def tell(done: int, of: int) -> None:
        nonlocal told
        if sys.stderr.isatty() and told != (tenth := done * 10 // of):
            told = tenth
            say(f"indexed: {done} of {of}")

    return tell


def export_files(
    settings: CoreSettings, file: Path, project: str, user: str | None, key_file: Path | None, *, as_json: bool
) -> None:
    """Write a caller's files into a tar archive."""
    chores = store_chores(settings)
    caller = _caller(settings, user, key_file).principal
    with _output(file) as out:

        async def export() -> Any:
            return await chores.export_files(caller.apikey_hash, project, out)

        done = _run(export)
    if not as_json:
        say(f"{_counted(done.files, 'file')}, {_counted(done.bytes, 'byte')}, of {_counted(done.projects, 'project')}")
    elif file == STANDARD:
        # The archive has standard output for itself.
        say(json.dumps(asdict(done)))
    else:
        show_json(asdict(done) | {"file": str(file)})


def import_files(
    settings: CoreSettings,
    file: Path,
    project: str | None,
    user: str | None,
    key_file: Path | None,
    *,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Take a tar archive in for a caller; ends with 1 when something was left out."""
    chores = store_chores(settings)
    call = _caller(settings, user, key_file)
    skipped: list[dict[str, str]] = []

    def tell(member: Any) -> None:
        skipped.append(asdict(member))
        if not as_json:
            say(f"skipped {printable(member.member)}: {member.reason} ({member.code})")

    with _input(file) as source:

        async def take_in() -> Any:
            return await chores.import_files(call, source, project=project, overwrite=overwrite, on_skipped=tell)

        done = _run(take_in)
    if as_json:
        show_json(asdict(done) | {"skipped": skipped})
    else:
        say(f"{_counted(done.written, 'file')} written, {done.unchanged} there already, {done.skipped} skipped")
    if done.written and not chores.finds_key_of(call):
        say("note: files are embedded with the caller's key, which no worker will find; the next write brings it")
    if done.skipped:
        raise typer.Exit(FAILED)


def _caller(settings: CoreSettings, user: str | None, key_file: Path | None) -> Call:
    """For whom: who has the key in a file, or a name in the settings, or the owner of the server's own token."""
    known = callers(settings)
    if user is not None and key_file is not None:
        raise Misuse("--user and --key-file exclude each other", hint="a key says whose it is")
    if key_file is not None:
        return _owner_of(read_token(key_file), known, settings)
    if user is None:
        own_token = token_path(settings)
        if own_token is not None:
            return _owner_of(read_token(own_token), known, settings)
        if settings.security.auth == "none":
            return Call(known[0])
        raise Misuse("there are several callers", hint="say whose files with --user or --key-file")
    named = [principal for principal in known if principal.username == user]
    if not named and user == LOCAL.username:
        return Call(LOCAL)
    if not named:
        raise ConfigError("nobody of that name is in the settings", hint="see security.keys")
    if len(named) > 1:
        raise Misuse("this user has several keys, each with files of its own", hint="say which one with --key-file")
    return Call(named[0])


def _owner_of(key: str, known: list[Principal], settings: CoreSettings) -> Call:
    anyone = settings.security.auth == "none"
    principal = Authenticator(known, open_to_anyone=anyone).identify(key)
    if principal is None:
        raise ConfigError("nobody in the settings has this key", hint="see security.keys")
    return Call(principal, credential=key)


@contextmanager
def _output(file: Path) -> Generator[BinaryIO]:
    """A file that is there when it is whole, and for its owner alone; or standard output."""
    if file == STANDARD:
        if sys.stdout.isatty():
            raise Misuse("an archive is nothing for a terminal", hint="name a file, or pipe it somewhere")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    fresh = file.with_name(f".{file.name}.{secrets.token_hex(6)}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Misuse(f"{file} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(fresh, file)
    except BaseException:
        os.unlink(fresh)
        raise


@contextmanager
def _input(file: Path) -> Generator[BinaryIO]:
    if file == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        source = file.open("rb")
    except OSError as error:
        raise Misuse(f"{file} cannot be read: {error.strerror}") from error
    with source:
        yield source


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _run(work: Callable[[], Awaitable[_Answer]]) -> _Answer:
    return anyio.run(work, backend_options={"use_uvloop": True})
