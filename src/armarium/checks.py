"""Checks everything that a server needs. The result of each check says how to solve a problem."""

from __future__ import annotations

import http.client
import os
import resource
import sqlite3
import stat
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path

from armarium.assembly import MANIFESTS
from armarium.capability import CheckResult
from armarium.command_line.output import destinations_line, without_credentials
from armarium.facilities import facilities_for
from armarium.foundation.audit import AuditFilter, read_records
from armarium.foundation.errors import ConfigError
from armarium.foundation.security.access import AccessRule
from armarium.foundation.security.authentication import open_authenticator, token_path
from armarium.foundation.security.identity import read_token
from armarium.foundation.security.keys import KeyFile
from armarium.foundation.security.network import EXCLUDED, restrict_network
from armarium.foundation.settings.model import CoreSettings
from armarium.foundation.sockets import configured_tls, listen, travels_in_clear_text
from armarium.settings import Settings, configured, text_destinations

_MIN_OPEN_FILES = 4096
_MAX_CLOCK_GAP_S = 2.0
_PROBE_TIMEOUT_S = 1.0


def server_checks(settings: CoreSettings, *, is_running: bool = True) -> list[CheckResult]:
    """The results of all checks of a server with these settings. Of a running one, the port is not checked."""
    of_server = [open_files(), *_renamed(settings), *_server(settings, is_running=is_running)]
    return [*of_server, *capability_checks(settings, is_running=is_running)]


def _renamed(settings: CoreSettings) -> Generator[CheckResult]:
    """The settings that the file has under the names of another document."""
    if settings.renamed:
        names = ", ".join(f"`{other}` is `{ours}`" for other, ours in settings.renamed.items())
        yield CheckResult("renamed settings", "ok", f"{names} here; both names may stay")


def _server(settings: CoreSettings, *, is_running: bool) -> Generator[CheckResult]:
    yield from _state_directory(settings.state_path())
    yield _callers(settings)
    yield from _access(settings)
    yield from _shared_directories(settings)
    if not is_running:
        yield _port(settings)
    yield _encryption(settings)
    yield _network(settings)
    if settings.audit.enabled:
        yield _audit_log(settings.audit_file())
    yield _traces(settings)


def capability_checks(settings: CoreSettings | None, *, is_running: bool = False) -> Generator[CheckResult]:
    """The checks of the capabilities. Without settings, those that need none."""
    facilities = facilities_for(settings or Settings(), is_served=is_running)
    for manifest in MANIFESTS:
        yield from manifest.check(getattr(settings, manifest.name, None), facilities)


def open_files() -> CheckResult:
    """Whether this process may open enough files."""
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


def _access(settings: CoreSettings) -> Iterator[CheckResult]:
    """The rules in effect, and groups that no key has."""
    rules = [
        (" ".join(filter(None, (manifest.name, about))), rule)
        for manifest, section in configured(settings)
        for about, rule in manifest.access_rules(section)
        if rule.named_groups()
    ]
    if settings.security.model_fields_set >= {"metrics_groups"}:
        rules.append(("/metrics", AccessRule(frozenset(settings.security.metrics_groups))))
    if not rules:
        yield CheckResult("access", "ok", "no groups are named: every key may use everything that it permits")
        return
    for about, rule in rules:
        yield CheckResult("access", "ok", f"{about}: {_rule_in_words(rule)}")
    if settings.security.auth == "none":
        message = "security.auth is none, so that callers are in no group: what names groups is refused to all"
        yield CheckResult("access", "warn", message, hint="use another `security.auth`, and `armarium keys add`")
        return
    with suppress(ConfigError):
        keys = KeyFile(settings.keys_file()).read()
        known = {group for key in (*keys, *settings.security.keys) for group in key.groups}
        for about, rule in rules:
            if missing := sorted(rule.named_groups() - known):
                message = f"{about}: no key is in {' or '.join(missing)}"
                hint = f"correct the name, or: armarium keys add NAME --group {missing[0]}"
                yield CheckResult("access", "warn", message, hint)


def _shared_directories(settings: CoreSettings) -> Iterator[CheckResult]:
    """Files that have groups in one capability, and can be read by others in another one."""
    directories = [
        (manifest.name, what, os.path.realpath(path), rule)
        for manifest, section in configured(settings)
        for what, path, rule in manifest.readable_directories(section)
    ]
    for (name, what, path, rule), (other_name, other, other_path, other_rule) in permutations(directories, 2):
        overlap = os.path.commonpath((path, other_path)) in (path, other_path)
        if name != other_name and overlap and not other_rule.is_within(rule):
            message = f"{other} shows files of {what} to callers outside of its groups"
            yield CheckResult("access", "warn", message, hint="give both the same groups, or separate them")


def _rule_in_words(rule: AccessRule) -> str:
    parts = [("", rule.groups), *((f"{role}: ", groups) for role, groups in rule.narrower.items())]
    return "; ".join(f"{prefix}{', '.join(sorted(groups))}" for prefix, groups in parts if groups)


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


def _network(settings: CoreSettings) -> CheckResult:
    restrict_network(settings.network)
    line = destinations_line(text_destinations(settings))
    return CheckResult("network", "warn" if EXCLUDED in line else "ok", line)


def _encryption(settings: CoreSettings) -> CheckResult:
    try:
        tls = configured_tls(settings.server.tls)
    except ConfigError as error:
        return CheckResult("encryption", "fail", error.message, error.hint)
    if tls is not None:
        return CheckResult("encryption", "ok", "TLS")
    if travels_in_clear_text(settings.server):
        message = f"keys and files travel in clear text to clients of {settings.server.host}"
        hint = "set server.tls, or server.trusted_proxies behind a proxy with TLS"
        return CheckResult("encryption", "warn", message, hint)
    return CheckResult("encryption", "ok", "only this machine, or a trusted proxy, can connect")


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
