"""Starts that cannot succeed fail with an error that names the problem and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from armarium.capabilities.sandbox import commands as filesystem
from armarium.foundation.audit import AuditLog
from armarium.foundation.errors import ConfigError
from armarium.foundation.security.identity import ensure_token, read_token
from armarium.foundation.settings.loader import load_settings
from armarium.foundation.telemetry import export_traces
from armarium.settings import Settings
from armarium.surfaces.cli.host import Host
from support.server import installed_command


@pytest.fixture
def occupied(tmp_path: Path) -> Path:
    """A file where a directory would have to be; not even root can write below it."""
    file = tmp_path / "occupied"
    file.write_text("a file")
    return file


def refusal(start: Callable[[], object]) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        start()
    assert refused.value.hint
    return refused.value


@pytest.mark.parametrize("below", ["secret.token", "deeper/secret.token"])
def test_a_token_that_cannot_be_kept_is_refused_with_its_directory(occupied: Path, below: str) -> None:
    token_file = occupied / below
    refused = refusal(lambda: ensure_token(token_file))
    assert str(token_file.parent) in refused.message
    assert "state_dir" in str(refused.hint)


def test_a_file_system_without_links_is_refused_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    refusal(lambda: ensure_token(tmp_path / "secret.token"))
    assert list(tmp_path.iterdir()) == []


def test_a_token_that_is_there_needs_no_directory_that_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> int:
        raise OSError(30, "Read-only file system")

    (tmp_path / "secret.token").write_text("kept\n")
    # Path.read_text does not go through os.open.
    monkeypatch.setattr(os, "open", read_only)
    assert ensure_token(tmp_path / "secret.token") == "kept"


def test_a_token_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe\x00")
    assert str(tmp_path / "token") in refusal(lambda: read_token(tmp_path / "token")).message


def test_an_audit_trail_that_cannot_be_made_is_refused_with_its_name(occupied: Path) -> None:
    trail = occupied / "state" / "audit.sqlite"
    assert str(trail) in refusal(lambda: AuditLog(trail)).message


def test_an_audit_trail_that_is_a_directory_is_refused_with_its_name(tmp_path: Path) -> None:
    trail = tmp_path / "audit.sqlite"
    trail.mkdir()
    assert str(trail) in refusal(lambda: AuditLog(trail)).message


def test_an_audit_trail_that_is_damaged_is_refused_with_its_name_and_kept(tmp_path: Path) -> None:
    trail = tmp_path / "audit.sqlite"
    damaged = b"not a database, but somebody may still want it" * 100
    trail.write_bytes(damaged)
    assert str(trail) in refusal(lambda: AuditLog(trail)).message
    assert trail.read_bytes() == damaged


def test_traces_without_the_extra_are_refused_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    refused = refusal(lambda: export_traces("http://127.0.0.1:9/v1/traces", "armarium"))
    assert refused.hint == "pip install 'armarium[otel]'"


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("ARMARIUM_PORT", "ARMARIUM_SERVER__PORT"),
        ("ARMARIUM_SERVER_PORT", "ARMARIUM_SERVER__PORT"),
        ("ARMARIUM_LOG_LEVEL", "ARMARIUM_TELEMETRY__LOG_LEVEL"),
        ("ARMARIUM_STATEDIR", "ARMARIUM_STATE_DIR"),
        ("ARMARIUM_LANDLOCK", "ARMARIUM_SANDBOX__LANDLOCK"),
        ("ARMARIUM_COLOUR_OF_THE_WALL", "SECTION__NAME"),
    ],
)
def test_a_variable_that_is_no_setting_is_refused_with_the_one_that_may_be_meant(variable: str, meant: str) -> None:
    refused = refusal(lambda: load_settings(Settings, environ={variable: "9000"}))
    assert variable in refused.message
    assert meant in str(refused.hint)


def test_variables_that_commands_and_clients_read_are_no_mistakes() -> None:
    environ = {"ARMARIUM_TOKEN": "x", "ARMARIUM_TRACEBACK": "1", "OTHER_PORT": "1"}
    assert load_settings(Settings, environ=environ) == Settings()


def test_what_a_cluster_says_of_a_service_with_our_name_is_no_mistake() -> None:
    said = {
        "ARMARIUM_SERVICE_HOST": "203.0.113.7",
        "ARMARIUM_SERVICE_PORT": "8091",
        "ARMARIUM_SERVICE_PORT_HTTP": "8091",
        "ARMARIUM_PORT": "tcp://203.0.113.7:8091",
        "ARMARIUM_PORT_8091_TCP": "tcp://203.0.113.7:8091",
        "ARMARIUM_PORT_8091_TCP_PROTO": "tcp",
        "ARMARIUM_PORT_8091_TCP_PORT": "8091",
        "ARMARIUM_PORT_8091_TCP_ADDR": "203.0.113.7",
    }
    cluster = {"KUBERNETES_SERVICE_HOST": "203.0.113.1"}
    assert load_settings(Settings, environ=said | cluster) == Settings()
    refusal(lambda: load_settings(Settings, environ=said))
    refusal(lambda: load_settings(Settings, environ=cluster | {"ARMARIUM_PORT": "9000"}))


@pytest.mark.parametrize("traceback", ["", "1"])
def test_a_fault_of_ours_is_told_in_a_line_and_its_place_only_to_who_asks(
    traceback: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the wheels came off")

    monkeypatch.setattr(filesystem, "_serve", fail)
    monkeypatch.setattr(sys, "argv", ["mcp-filesystem", "--config", "any.yaml"])
    monkeypatch.setenv("ARMARIUM_TRACEBACK", traceback)
    with pytest.raises(SystemExit) as ended:
        filesystem.main(Host())
    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert "mcp-filesystem: RuntimeError: the wheels came off\n" in said
    assert said.count("\n") == 2 or traceback
    assert ("Traceback" in said) == bool(traceback)


@pytest.mark.parametrize("trouble", ["state", "trail", "variable"])
def test_the_command_ends_with_2_and_says_why_without_a_traceback(tmp_path: Path, occupied: Path, trouble: str) -> None:
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"not a database" * 100)
    environ = {
        "state": {"XDG_STATE_HOME": str(occupied)},
        "trail": {"XDG_STATE_HOME": str(tmp_path / "state"), "ARMARIUM_AUDIT__FILE": str(damaged)},
        "variable": {"XDG_STATE_HOME": str(tmp_path / "state"), "ARMARIUM_PORT": "9000"},
    }[trouble]
    ended = subprocess.run(
        [installed_command("armarium"), "up", str(tmp_path), "--port", "0"],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2
    assert {"state": str(occupied), "trail": str(damaged), "variable": "ARMARIUM_PORT"}[trouble] in ended.stderr
    assert "hint: " in ended.stderr
    assert "Traceback" not in ended.stderr
