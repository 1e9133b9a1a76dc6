"""`armarium doctor` reports problems with hints."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.command_line import Command, CommandLine, InThisProcess
from support.trusted import trust

Start = Callable[..., Command]


@pytest.fixture
def configured(project: Path, environ: dict[str, str]) -> Callable[..., Path]:
    """Writes armarium.yaml with the project as its root, and the given settings."""

    def write(root: dict[str, Any] | None = None, **sections: Any) -> Path:
        roots = [{"name": "work", "path": str(project), "allowed_tools": ["*"]} | (root or {})]
        settings = {"server": {"port": 0}, "sandbox": {"roots": roots}} | sections
        file = project / "armarium.yaml"
        file.write_text(yaml.safe_dump(settings))
        trust(project, environ)
        return file

    return write


def findings(armarium: CommandLine | InThisProcess, *, code: int) -> dict[str, dict[str, Any]]:
    """The results by subject; the worst one if a subject has several."""
    outcome = armarium("doctor", "--json")
    assert outcome.code == code, outcome.stdout
    assert outcome.json["ok"] is (code == 0)
    order = ("ok", "warn", "fail")
    ranked = sorted(outcome.json["findings"], key=lambda finding: order.index(finding["state"]))
    assert all(finding["hint"] for finding in ranked if finding["state"] != "ok")
    return {finding["subject"]: finding for finding in ranked}


def test_a_valid_configuration_passes(armarium: CommandLine, configured: Callable[..., Path]) -> None:
    configured()
    found = findings(armarium, code=0)
    assert {"python", "settings", "state directory", "token", "port", "audit log", "openat2", "landlock"} <= set(found)
    assert found["root work"]["state"] == "ok"


def test_a_console_that_is_not_built_is_a_warning_with_what_to_do(
    quick: InThisProcess, configured: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    configured()
    monkeypatch.setattr("armarium.surfaces.cli.doctor.is_built", lambda: False)
    missing = findings(quick, code=0)["console"]
    assert (missing["state"], "make console" in missing["hint"]) == ("warn", True)
    monkeypatch.setattr("armarium.surfaces.cli.doctor.is_built", lambda: True)
    assert findings(quick, code=0)["console"]["state"] == "ok"


def test_hints_are_printed_below_their_problems(armarium: CommandLine, configured: Callable[..., Path]) -> None:
    configured({"path": "/nowhere-at-all"})
    outcome = armarium("doctor")
    assert outcome.code == 1
    lines = outcome.stdout.splitlines()
    broken = next(number for number, line in enumerate(lines) if line.startswith("fail"))
    assert "root work" in lines[broken]
    assert "/nowhere-at-all does not exist" in lines[broken]
    assert lines[broken + 1].strip().startswith("hint: ")
    assert "\x1b" not in outcome.stdout


def test_with_invalid_settings_only_checks_without_settings_run(quick: InThisProcess, project: Path) -> None:
    (project / "armarium.yaml").write_text("server: {prot: 1}\n")
    found = findings(quick, code=1)
    assert found["settings"]["state"] == "fail"
    assert "were skipped" in found["settings"]["message"]
    assert "port" in found["settings"]["hint"]
    assert "openat2" in found
    assert not {"port", "token", "callers", "state directory", "audit log"} & set(found)


def test_a_payload_limit_above_the_body_limit_is_a_warning(
    quick: InThisProcess, configured: Callable[..., Path]
) -> None:
    configured(server={"port": 0, "max_body_bytes": 1_000_000}, store={})
    assert "server.max_body_bytes" in findings(quick, code=0)["store writes"]["hint"]
    configured(store={})
    assert "store writes" not in findings(quick, code=0)


def test_settings_without_a_capability_fail(quick: InThisProcess, project: Path) -> None:
    (project / "armarium.yaml").write_text("server: {port: 0}\n")
    assert "sandbox" in findings(quick, code=1)["settings"]["hint"]


def test_a_root_that_is_a_file_fails(quick: InThisProcess, configured: Callable[..., Path], project: Path) -> None:
    configured({"path": str(project / "hello.txt")})
    assert findings(quick, code=1)["root work"]["state"] == "fail"


@pytest.mark.parametrize("setting", ["ignore", "deny_write"])
def test_an_invalid_pattern_fails(quick: InThisProcess, configured: Callable[..., Path], setting: str) -> None:
    configured({setting: ["[z-a]"]})
    assert findings(quick, code=1)["root work"]["state"] == "fail"


def test_a_root_in_which_agents_may_write_anything_gives_a_warning(
    quick: InThisProcess, configured: Callable[..., Path]
) -> None:
    configured({"deny_write": False})
    assert findings(quick, code=0)["root work"]["state"] == "warn"
    configured()
    assert findings(quick, code=0)["root work"]["state"] == "ok"


def test_a_token_that_others_may_read_fails(
    quick: InThisProcess, configured: Callable[..., Path], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    token.chmod(0o644)
    configured(security={"auth": f"file:{token}"})
    assert findings(quick, code=1)["token"]["hint"] == f"chmod 600 {token}"
    token.chmod(0o600)
    assert findings(quick, code=0)["token"]["state"] == "ok"


@pytest.mark.parametrize("content", [None, ""])
def test_a_token_file_without_a_token_fails(
    quick: InThisProcess, configured: Callable[..., Path], tmp_path: Path, content: str | None
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_text(content)
    configured(security={"auth": f"file:{token}"})
    assert findings(quick, code=1)["token"]["state"] == "fail"


def test_a_public_server_without_a_token_fails(quick: InThisProcess, configured: Callable[..., Path]) -> None:
    configured(server={"host": "0.0.0.0", "port": 0}, security={"auth": "none"})
    assert findings(quick, code=1)["callers"]["state"] == "fail"


def test_a_state_directory_that_others_may_enter_is_a_warning(
    quick: InThisProcess, configured: Callable[..., Path], tmp_path: Path
) -> None:
    state = tmp_path / "open"
    state.mkdir()
    state.chmod(0o755)
    configured(state_dir=str(state))
    assert findings(quick, code=0)["state directory"]["hint"] == f"chmod 700 {state}"


def test_an_unusable_state_directory_fails(
    quick: InThisProcess, configured: Callable[..., Path], project: Path
) -> None:
    configured(state_dir=str(project / "hello.txt"))
    assert findings(quick, code=1)["state directory"]["state"] == "fail"
    configured(state_dir=str(project / "hello.txt" / "below"))
    assert findings(quick, code=1)["state directory"]["state"] == "fail"


def test_a_root_may_contain_the_state_directory(
    quick: InThisProcess, configured: Callable[..., Path], project: Path
) -> None:
    configured(state_dir=str(project / "state"))
    assert findings(quick, code=0)["root work"]["state"] == "ok"


def test_the_state_directory_itself_cannot_be_a_root(
    quick: InThisProcess, configured: Callable[..., Path], project: Path
) -> None:
    configured(state_dir=str(project))
    problem = findings(quick, code=1)["root work"]
    assert problem["state"] == "fail"
    assert problem["hint"] == "serve another directory"


def test_a_port_in_use_fails_and_a_running_server_is_a_warning(
    quick: InThisProcess, start: Start, configured: Callable[..., Path]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        configured(server={"port": other.getsockname()[1]})
        other.settimeout(0)  # Accepts nobody: whatever this is, it does not answer.
        assert findings(quick, code=1)["port"]["state"] == "fail"
    server = start("up", "--auth", "none", "--port", "0", "--json")
    port = int(json.loads(server.stdout.next())["url"].split(":")[2].removesuffix("/mcp"))
    configured(server={"port": port})
    found = findings(quick, code=0)["port"]
    assert (found["state"], "already" in found["message"]) == ("warn", True)


def test_an_invalid_audit_log_fails(quick: InThisProcess, configured: Callable[..., Path], tmp_path: Path) -> None:
    trail = tmp_path / "audit.sqlite"
    trail.write_text("this is not a database, and it is long enough to be looked at twice")
    configured(audit={"file": str(trail)})
    assert findings(quick, code=1)["audit log"]["state"] == "fail"


def test_checks_change_nothing(quick: InThisProcess, configured: Callable[..., Path], home: Path) -> None:
    configured()
    before = sorted(home.rglob("*"))
    findings(quick, code=0)
    assert sorted(home.rglob("*")) == before


def access_findings(armarium: InThisProcess) -> list[tuple[str, str]]:
    found = armarium("doctor", "--json").json["findings"]
    return [(each["state"], each["message"]) for each in found if each["subject"] == "access"]


def test_the_rules_in_effect_are_shown_and_groups_that_no_key_has_are_warnings(
    quick: InThisProcess, configured: Callable[..., Path], project: Path
) -> None:
    configured()
    assert access_findings(quick) == [("ok", "no groups are named: every key may use everything that it permits")]

    registry = {"project": str(project), "access": {"judge": ["leads", "owners"]}}
    keys = [{"username": "ada", "groups": ["staff"], "key_sha256": "0" * 64}]
    configured({"groups": ["staff"]}, registry=registry, security={"auth": "keys", "keys": keys})
    assert quick("keys", "add", "grace", "--group", "leads").code == 0
    assert access_findings(quick) == [
        ("ok", "sandbox root work: staff"),
        ("ok", "registry: judge: leads, owners"),
        ("warn", "registry: no key is in owners"),
    ]


def test_a_corpus_that_shows_a_restricted_root_to_others_is_a_warning(
    quick: InThisProcess, configured: Callable[..., Path], project: Path
) -> None:
    keys = [{"username": "ada", "groups": ["staff"], "key_sha256": "0" * 64}]
    sections: dict[str, Any] = {"security": {"auth": "keys", "keys": keys}}
    message = "the corpus shows files of the root work to callers outside of its groups"
    for corpus, warns in (({}, True), ({"groups": ["staff"]}, False), ({"access": {"read": ["staff"]}}, True)):
        configured({"groups": ["staff"]}, corpus={"root": str(project.parent), **corpus}, **sections)
        assert (("warn", message) in access_findings(quick)) is warns
    configured({}, corpus={"root": str(project), "groups": ["staff"]}, **sections)
    assert ("warn", "the root work shows files of the corpus to callers outside of its groups") in access_findings(
        quick
    )


def test_a_root_inside_one_that_admits_others_is_a_failure(
    quick: InThisProcess, configured: Callable[..., Path], project: Path
) -> None:
    (project / "inner").mkdir()
    (project / "link").symlink_to(project / "inner")
    keys = [{"username": "ada", "groups": ["staff"], "key_sha256": "0" * 64}]
    outer = {"name": "work", "path": str(project), "allowed_tools": ["*"]}
    for path in (project / "inner", project / "link"):
        inner = {"name": "vault", "path": str(path), "allowed_tools": ["*"], "groups": ["staff"]}
        configured(sandbox={"roots": [inner, outer]}, security={"auth": "keys", "keys": keys})
        found = findings(quick, code=1)["roots"]
        assert found["state"] == "fail"
        assert "vault lies in the root work" in found["message"]
        outcome = quick("serve")
        assert outcome.code == 2
        assert "vault lies in the root work" in outcome.stderr
        configured(sandbox={"roots": [inner, outer | {"groups": ["staff"]}]}, security={"auth": "keys", "keys": keys})
        assert "roots" not in findings(quick, code=0)


def test_groups_without_keys_are_a_warning(quick: InThisProcess, configured: Callable[..., Path]) -> None:
    configured({"groups": ["staff"]}, security={"auth": "none"})
    states = [state for state, _ in access_findings(quick)]
    assert states == ["ok", "warn"]


def test_a_role_that_does_not_exist_is_a_failure(
    quick: InThisProcess, configured: Callable[..., Path], project: Path
) -> None:
    configured(registry={"project": str(project), "access": {"judges": ["staff"]}})
    outcome = quick("doctor")
    assert outcome.code == 1
    assert "`registry.access`: unknown role 'judges'; known here: read, report, judge, administer" in outcome.stdout
