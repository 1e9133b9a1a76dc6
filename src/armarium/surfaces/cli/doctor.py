"""`armarium doctor`: checks everything that a server needs, and prints how to solve problems."""

from __future__ import annotations

import http.client
import os
import resource
import sqlite3
import stat
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from platform import python_version

import typer

from armarium.assembly import MANIFESTS
from armarium.capability import CheckResult
from armarium.command_line.options import settings_file
from armarium.command_line.output import show, show_json, without_credentials
from armarium.foundation.audit import AuditFilter, read_records
from armarium.foundation.authentication import open_authenticator, token_path
from armarium.foundation.errors import ConfigError
from armarium.foundation.identity import read_token
from armarium.foundation.settings import CoreSettings
from armarium.foundation.settings_loader import load_settings
from armarium.foundation.sockets import listen
from armarium.server import facilities_for
from armarium.settings import Settings, configured

_MIN_OPEN_FILES = 4096
_MAX_CLOCK_GAP_S = 2.0
_PROBE_TIMEOUT_S = 1.0
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def run_checks(config: Path | None) -> list[CheckResult]:
    """The results of all checks. With invalid settings, only checks that need no settings run."""
    results = [CheckResult("python", "ok", python_version()), _open_files()]
    file = settings_file(config)
    try:
        settings = load_settings(Settings, file, environ=os.environ)
    except ConfigError as error:
        message = f"{error.message}; checks that need settings were skipped"
        results.append(CheckResult("settings", "fail", message, error.hint))
        return [*results, *_capabilities(None)]
    return [*results, _settings(settings, file), *_server(settings), *_capabilities(settings)]


def _settings(settings: CoreSettings, file: Path | None) -> CheckResult:
    if file is None:
        return CheckResult("settings", "ok", "there is no armarium.yaml here; the defaults apply")
    if not configured(settings):
        sections = ", ".join(manifest.name for manifest in MANIFESTS)
        return CheckResult("settings", "fail", f"{file} configures no capability", hint=f"add a section: {sections}")
    return CheckResult("settings", "ok", str(file))


def _server(settings: CoreSettings) -> Generator[CheckResult]:
    yield from _state_directory(settings.state_path())
    yield _callers(settings)
    yield _port(settings)
    if settings.audit.enabled:
        yield _audit_log(settings.audit_file())
    yield _traces(settings)


def _capabilities(settings: CoreSettings | None) -> Generator[CheckResult]:
    """The checks of the capabilities. Without settings, those that need none."""
    facilities = facilities_for(settings or Settings())
    for manifest in MANIFESTS:
        yield from manifest.check(getattr(settings, manifest.name, None), facilities)


def _open_files() -> CheckResult:
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= _MIN_OPEN_FILES:
        return CheckResult("open files", "ok", "unlimited" if limit == resource.RLIM_INFINITY else f"up to {limit}")
    return CheckResult(
        "open files", "warn", f"only {limit} at once", hint=f"raise the hard limit: ulimit -Hn {_MIN_OPEN_FILES}"
    )


def _state_directory(state: Path) -> Iterator[CheckResult]:
    if not state.exists():
        yield _creatable("state directory", state)
        return
    if not state.is_dir() or not os.access(state, os.W_OK | os.X_OK):
        hint = "set `state_dir` to a writable directory"
        yield CheckResult("state directory", "fail", f"{state} is not writable", hint)
        return
    mode = stat.S_IMODE(state.stat().st_mode)
    if mode & 0o077:
        message = f"{state} is open to other users (mode {mode:04o})"
        yield CheckResult("state directory", "warn", message, hint=f"chmod 700 {state}")
    else:
        yield CheckResult("state directory", "ok", str(state))
    yield _clock(state)


def _creatable(subject: str, path: Path) -> CheckResult:
    existing = next(parent for parent in path.absolute().parents if parent.exists())
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return CheckResult(subject, "ok", f"{path} will be created")
    return CheckResult(subject, "fail", f"{path} cannot be created", hint=f"let this user write in {existing}")


def _clock(directory: Path) -> CheckResult:
    """Compare clocks: a network file system sets file times by its own."""
    with tempfile.TemporaryFile(dir=directory) as probe:
        gap_s = abs(os.fstat(probe.fileno()).st_mtime - time.time())
    if gap_s <= _MAX_CLOCK_GAP_S:
        return CheckResult("clock", "ok", "file times agree with this machine's clock")
    message = f"file times differ from this machine's clock by {gap_s:.0f} s"
    return CheckResult("clock", "warn", message, hint="synchronise the clocks, or move `state_dir` to a local disk")


def _callers(settings: CoreSettings) -> CheckResult:
    file = token_path(settings)
    if file is None:
        try:
            open_authenticator(settings)
        except ConfigError as error:
            return CheckResult("callers", "fail", error.message, error.hint)
        who = "anyone on this machine" if settings.security.auth == "none" else f"{len(settings.security.keys)} keys"
        return CheckResult("callers", "ok", who)
    if not file.exists() and settings.security.auth == "auto":
        return CheckResult("token", "ok", f"{file} will be created at the first start")
    try:
        read_token(file)
    except ConfigError as error:
        return CheckResult("token", "fail", error.message, error.hint or "write a long random string into it")
    if stat.S_IMODE(file.stat().st_mode) & 0o077:
        return CheckResult("token", "fail", f"other users may read {file}", hint=f"chmod 600 {file}")
    return CheckResult("token", "ok", str(file))


def _port(settings: CoreSettings) -> CheckResult:
    host, port = settings.server.host, settings.server.port
    try:
        listen(host, port).close()
    except ConfigError as error:
        if _answers(host, port):
            message = f"a server already answers on {host}:{port}"
            return CheckResult("port", "warn", message, hint="stop it, or use --port")
        return CheckResult("port", "fail", error.message, error.hint)
    return CheckResult("port", "ok", f"{host}:{port} is free" if port else f"{host}, any free port")


def _answers(host: str, port: int) -> bool:
    with closing(http.client.HTTPConnection(host, port, timeout=_PROBE_TIMEOUT_S)) as connection:
        try:
            connection.request("GET", "/health")
            return connection.getresponse().read(16).startswith((b"ok", b"degraded"))
        except (OSError, http.client.HTTPException):
            return False


def _audit_log(file: Path) -> CheckResult:
    if not file.exists():
        return _creatable("audit log", file)
    if not os.access(file, os.R_OK | os.W_OK):
        return CheckResult("audit log", "fail", f"{file} is not writable", hint="let this user write it")
    try:
        read_records(file, AuditFilter(), last=1)
    except sqlite3.Error as error:
        message = f"{file} cannot be read: {error}"
        return CheckResult("audit log", "fail", message, hint="move it away; the next start creates a new one")
    return CheckResult("audit log", "ok", str(file))


def _traces(settings: CoreSettings) -> CheckResult:
    endpoint = settings.telemetry.otlp_endpoint
    try:
        has_exporter = find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        has_exporter = False
    if has_exporter:
        message = without_credentials(endpoint) if endpoint else "the otel extra is installed but not used"
        return CheckResult("traces", "ok", message)
    if endpoint:
        message = "telemetry.otlp_endpoint is set, but the otel extra is not installed"
        return CheckResult("traces", "fail", message, hint="pip install 'armarium[otel]'")
    return CheckResult("traces", "ok", "not configured")


def show_results(results: Sequence[CheckResult], *, as_json: bool) -> None:
    if as_json:
        healthy = all(result.state != "fail" for result in results)
        show_json({"ok": healthy, "findings": [asdict(result) for result in results]})
        return
    width = max(len(result.subject) for result in results)
    for result in results:
        state = f"{result.state:<4}"
        if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
            state = typer.style(state, fg=_COLOURS[result.state])
        show(f"{state}  {result.subject:<{width}}  {result.message}")
        if result.hint and result.state != "ok":
            show(f"{'':4}  {'':<{width}}  hint: {result.hint}")
