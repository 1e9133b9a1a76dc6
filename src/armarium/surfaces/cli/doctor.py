"""Looks at everything a server needs before it starts, and says what to do about what is missing."""

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
from armarium.capability import CheckResult, Facilities
from armarium.command_line.options import settings_file
from armarium.command_line.output import show, show_json, without_credentials
from armarium.foundation.audit import AuditFilter, read_records
from armarium.foundation.authentication import open_authenticator, token_path
from armarium.foundation.errors import ConfigError
from armarium.foundation.events import Events
from armarium.foundation.identity import read_token
from armarium.foundation.settings import CoreSettings
from armarium.foundation.settings_loader import load_settings
from armarium.foundation.sockets import listen
from armarium.settings import Settings

_OLDEST_PYTHON = (3, 11)
_FEWEST_FILES = 4096
_WIDEST_CLOCK_GAP_S = 2.0
_PROBE_TIMEOUT_S = 1.0
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def examine(config: Path | None) -> list[CheckResult]:
    """Everything that was looked at, in order."""
    findings = [_python(), _open_files()]
    file = settings_file(config)
    try:
        settings = load_settings(Settings, file, environ=os.environ)
    except ConfigError as error:
        # The machine can still be looked at; what the defaults would be is nobody's question.
        message = f"{error.message}; nothing that depends on them was looked at"
        findings.append(CheckResult("settings", "fail", message, error.hint))
        return [*findings, *_machine()]
    return [*findings, _chosen(settings, file), *_server(settings), *_capabilities(settings)]


def _chosen(settings: CoreSettings, file: Path | None) -> CheckResult:
    if file is None:
        return CheckResult("settings", "ok", "no armarium.yaml here; the defaults")
    if all(getattr(settings, manifest.name) is None for manifest in MANIFESTS):
        sections = ", ".join(manifest.name for manifest in MANIFESTS)
        return CheckResult("settings", "fail", f"{file} configures no capability", hint=f"add a section: {sections}")
    return CheckResult("settings", "ok", str(file))


def _server(settings: CoreSettings) -> Generator[CheckResult]:
    yield from _state_directory(settings.state_path())
    yield _callers(settings)
    yield _port(settings)
    if settings.audit.enabled:
        yield _audit_trail(settings.audit_file())
    yield _traces(settings)


def _machine() -> Generator[CheckResult]:
    """What capabilities find without being asked for."""
    facilities = Facilities(Events(), Settings().state_path())
    for manifest in MANIFESTS:
        yield from manifest.check(None, facilities)


def _capabilities(settings: CoreSettings) -> Generator[CheckResult]:
    facilities = Facilities(Events(), settings.state_path(), max_body_bytes=settings.server.max_body_bytes)
    for manifest in MANIFESTS:
        yield from manifest.check(getattr(settings, manifest.name), facilities)


def _python() -> CheckResult:
    if sys.version_info >= _OLDEST_PYTHON:
        return CheckResult("python", "ok", python_version())
    wanted = ".".join(map(str, _OLDEST_PYTHON))
    return CheckResult("python", "fail", f"{python_version()} is too old", hint=f"install Python {wanted} or later")


def _open_files() -> CheckResult:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY or most >= _FEWEST_FILES:
        return CheckResult("open files", "ok", "no limit" if most == resource.RLIM_INFINITY else f"up to {most}")
    return CheckResult(
        "open files", "warn", f"only {most} at once", hint=f"raise the hard limit: ulimit -Hn {_FEWEST_FILES}"
    )


def _state_directory(state: Path) -> Iterator[CheckResult]:
    if not state.exists():
        yield _creatable("state directory", state)
        return
    if not state.is_dir() or not os.access(state, os.W_OK | os.X_OK):
        yield CheckResult(
            "state directory", "fail", f"{state} cannot be written", hint="set `state_dir` to one that can"
        )
        return
    mode = stat.S_IMODE(state.stat().st_mode)
    if mode & 0o077:
        message = f"{state} is open to other users (mode {mode:04o})"
        yield CheckResult("state directory", "warn", message, hint=f"chmod 700 {state}")
    else:
        yield CheckResult("state directory", "ok", str(state))
    yield _clock(state)


def _creatable(subject: str, wanted: Path) -> CheckResult:
    above = next(parent for parent in wanted.absolute().parents if parent.exists())
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return CheckResult(subject, "ok", f"{wanted} will be created")
    return CheckResult(subject, "fail", f"{wanted} cannot be created", hint=f"let this user write in {above}")


def _clock(directory: Path) -> CheckResult:
    """A network file system stamps files with a clock of its own."""
    with tempfile.TemporaryFile(dir=directory) as probe:
        gap_s = abs(os.fstat(probe.fileno()).st_mtime - time.time())
    if gap_s <= _WIDEST_CLOCK_GAP_S:
        return CheckResult("clock", "ok", "file times agree with this machine's clock")
    message = f"file times are {gap_s:.0f} s away from this machine's clock"
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
        return CheckResult("token", "ok", f"{file} will be made at the first start")
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
            return CheckResult(
                "port", "warn", f"a server answers on {host}:{port} already", hint="stop it, or use --port"
            )
        return CheckResult("port", "fail", error.message, error.hint)
    return CheckResult("port", "ok", f"{host}:{port} is free" if port else f"{host}, any free port")


def _answers(host: str, port: int) -> bool:
    with closing(http.client.HTTPConnection(host, port, timeout=_PROBE_TIMEOUT_S)) as connection:
        try:
            connection.request("GET", "/health")
            return connection.getresponse().read(16).startswith((b"ok", b"degraded"))
        except (OSError, http.client.HTTPException):
            return False


def _audit_trail(file: Path) -> CheckResult:
    if not file.exists():
        return _creatable("audit trail", file)
    if not os.access(file, os.R_OK | os.W_OK):
        return CheckResult("audit trail", "fail", f"{file} cannot be written", hint="let this user write it")
    try:
        read_records(file, AuditFilter(), last=1)
    except sqlite3.Error as error:
        message = f"{file} cannot be read: {error}"
        return CheckResult("audit trail", "fail", message, hint="move it away; a new one is made at the next start")
    return CheckResult("audit trail", "ok", str(file))


def _traces(settings: CoreSettings) -> CheckResult:
    endpoint = settings.telemetry.otlp_endpoint
    if _has_exporter():
        message = without_credentials(endpoint) if endpoint else "the otel extra is installed, and not used"
        return CheckResult("traces", "ok", message)
    if endpoint:
        message = "telemetry.otlp_endpoint is set, and the otel extra is not installed"
        return CheckResult("traces", "fail", message, hint="pip install 'armarium[otel]'")
    return CheckResult("traces", "ok", "the otel extra is not installed, and not needed")


def _has_exporter() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def show_findings(findings: Sequence[CheckResult], *, as_json: bool) -> None:
    """Tell what was found; the report is the command's data."""
    if as_json:
        healthy = all(finding.state != "fail" for finding in findings)
        show_json({"ok": healthy, "findings": [asdict(finding) for finding in findings]})
        return
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        state = f"{finding.state:<4}"
        if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
            state = typer.style(state, fg=_COLOURS[finding.state])
        show(f"{state}  {finding.subject:<{width}}  {finding.message}")
        if finding.hint and finding.state != "ok":
            show(f"{'':4}  {'':<{width}}  hint: {finding.hint}")
