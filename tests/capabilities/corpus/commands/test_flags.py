"""The command line of `dir2mcp`: flags before and after the command, and the exit codes of invalid ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.corpus.commands import up as up_module
from armarium.capabilities.corpus.commands.options import CommonOptions
from armarium.capabilities.corpus.commands.settings import Dir2McpSettings
from armarium.capabilities.corpus.commands.settings_loader import Location, load
from support.command_line import DEADLINE_S
from support.dir2mcp_command import Quick


class Served(Exception):
    """The arguments of `up`."""

    def __init__(self, common: CommonOptions, flags: dict[str, Any]) -> None:
        self.common, self.flags = common, flags


@pytest.fixture
def would_serve(here: Quick, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs `dir2mcp up …` without a server, and returns its arguments and settings."""
    seen: list[Served] = []

    monkeypatch.setattr(up_module, "up", lambda common, flags: seen.append(Served(common, flags)))

    def call(*arguments: str | Path) -> tuple[Served, Dir2McpSettings]:
        outcome = here(*arguments)
        assert outcome.code == 0, outcome.stderr
        return seen[-1], load(seen[-1].common.location, {}, seen[-1].flags).settings

    return call


@pytest.mark.parametrize(
    ("arguments", "setting", "value"),
    [
        (["--listen", "127.0.0.1:8080"], "server.listen", "127.0.0.1:8080"),
        (["--mcp-path", "/x/mcp"], "server.mcp_path", "/x/mcp"),
        (["--public"], "server.public", True),
        (["--auth", "none"], "security.auth.mode", "none"),
        (["--auth", "auto"], "security.auth.mode", "auto"),
        (["--auth", "file:/run/token"], "security.auth.token_file", "/run/token"),
        (["--tls-cert", "/c.pem", "--tls-key", "/k.pem"], "server.tls.enabled", True),
        (["--tls-cert", "/c.pem", "--tls-key", "/k.pem"], "server.tls.key_file", "/k.pem"),
        (["--x402", "off"], "x402.mode", "off"),
        (["--x402", "required"], "x402.mode", "required"),
        (["--x402-facilitator-url", "https://f.example"], "x402.facilitator_url", "https://f.example"),
        (["--x402-resource-base-url", "https://r.example"], "x402.resource_base_url", "https://r.example"),
        (["--x402-network", "eip155:84532"], "x402.route_policy.tools_call.network", "eip155:84532"),
        (["--x402-price", "0.01"], "x402.route_policy.tools_call.price", "0.01"),
        (["--read-only"], "server.public", False),
    ],
)
def test_a_flag_of_up_is_a_setting(would_serve: Any, arguments: list[str], setting: str, value: Any) -> None:
    _, settings = would_serve("up", *arguments)
    found: Any = settings
    for step in setting.split("."):
        found = getattr(found, step)
    assert found == value


def test_relative_files_on_the_command_line_are_relative_to_where_it_is_run(would_serve: Any, project: Path) -> None:
    below = project / "below"
    below.mkdir()
    _, settings = would_serve("up", "--dir", "below", "--auth", "file:my.token")
    assert settings.security.auth.token_file == str(project / "my.token")


@pytest.mark.parametrize("before", [True, False])
def test_global_flags_are_taken_before_and_after_the_command(would_serve: Any, project: Path, before: bool) -> None:
    (project / "sub").mkdir()
    (project / "my.yaml").write_text("rag:\n  k_default: 7\n")
    flags = ["--dir", "sub", "--config", "my.yaml", "--state-dir", "st", "--json", "--non-interactive", "--quiet"]
    served, settings = would_serve(*([*flags, "up"] if before else ["up", *flags]))
    assert served.common.location == Location(Path("sub"), Path("my.yaml"), Path("st"))
    assert (served.common.as_json, served.common.quiet, served.common.interactive) == (True, True, False)
    assert settings.rag.k_default == 7


def test_a_flag_after_the_command_wins_over_the_same_one_before_it(would_serve: Any, project: Path) -> None:
    (project / "a").mkdir()
    (project / "b").mkdir()
    served, _ = would_serve("--dir", "a", "up", "--dir", "b")
    assert served.common.location.directory == Path("b")


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--listen", "nowhere"],
        ["up", "--listen", "127.0.0.1:99999"],
        ["up", "--mcp-path", "no-slash"],
        ["up", "--mcp-path", "/metrics"],
        ["up", "--auth", "sesame"],
        ["up", "--auth", "file:"],
        ["up", "--auth", "file:missing.token"],
        ["up", "--public", "--auth", "none"],
        ["up", "--listen", "0.0.0.0:0", "--auth", "none"],
        ["up", "--listen", ":0", "--auth", "none"],
        ["up", "--tls-cert", "only.pem"],
        ["up", "--tls-key", "only.pem"],
        ["up", "--x402", "maybe"],
        ["up", "--x402", "on"],
        ["up", "--x402", "required"],
        ["up", "--x402-facilitator-url", "ftp://x"],
        ["up", "--x402-resource-base-url", "x"],
        ["up", "--x402-network", "base"],
        ["up", "--x402-price", "-1"],
        ["up", "--config", "missing.yaml"],
        ["up", "extra"],
        ["up", "--unknown"],
        ["--listen", "127.0.0.1:0", "up"],
        ["ask"],
        ["ask", " "],
        ["ask", "why", "--k", "0"],
        ["ask", "why", "--k", "51"],
        ["ask", "why", "--k", "many"],
        ["ask", "why", "--mode", "guess"],
        ["ask", "why", "--index", "all"],
        ["reindex", "now"],
        ["config", "write"],
        ["serve"],
    ],
)
def test_a_wrong_command_line_ends_with_2_and_is_reported_as_text_and_json(here: Quick, arguments: list[str]) -> None:
    outcome = here(*arguments, "--json", "--non-interactive")
    assert outcome.code == 2
    fatal = json.loads(outcome.stdout)
    assert (fatal["event"], fatal["level"]) == ("fatal", "error")
    assert outcome.stderr.startswith(f"ERROR: {fatal['data']['code']}: {fatal['data']['message']}")


def test_payments_are_named_as_what_this_version_does_not_have(here: Quick) -> None:
    outcome = here("up", "--x402", "on", "--json")
    assert outcome.json["data"]["code"] == "CONFIG_INVALID"
    assert "not available in this version" in outcome.json["data"]["message"]


def test_a_token_given_by_mistake_is_not_repeated(here: Quick) -> None:
    outcome = here("up", "--auth", "canary-token-on-the-command-line", "--json")
    assert "canary" not in outcome.stdout + outcome.stderr


@pytest.mark.parametrize("command", [["up"], ["ask", "why"], ["reindex"], ["status"], ["config", "print"]])
def test_a_directory_that_cannot_be_read_ends_with_3(here: Quick, project: Path, command: list[str]) -> None:
    (project / "file").write_text("a file\n")
    for directory in ("nowhere", "file"):
        outcome = here(*command, "--dir", directory, "--json")
        assert (outcome.code, outcome.json["data"]["code"]) == (3, "ROOT_INACCESSIBLE")


WITHOUT_RIGHTS = """
import os, sys
from armarium.capabilities.corpus.commands import ask, snapshot, status, up, wizard
from armarium.capabilities.corpus.commands.app import run
from armarium import server, settings
from armarium.surfaces import dispatch
from armarium.surfaces.cli.host import Host
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(run(sys.argv[1:], Host()))
"""
"""`dir2mcp …` for a user without permissions. It imports everything first, because that user cannot read the source."""


def run_without_rights(environ: dict[str, str], cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", WITHOUT_RIGHTS, *arguments, "--json", "--non-interactive"]
    return subprocess.run(program, cwd=cwd, env=environ, capture_output=True, text=True, timeout=DEADLINE_S)


@pytest.mark.parametrize("command", [["up"], ["ask", "why"], ["reindex"], ["status"], ["config", "print"]])
def test_a_directory_that_may_not_be_listed_ends_with_3(
    environ: dict[str, str], project: Path, command: list[str]
) -> None:
    project.chmod(0o755)
    (project / "closed").mkdir(mode=0)
    done = run_without_rights(environ, project, *command, "--dir", "closed")
    assert (done.returncode, json.loads(done.stdout)["data"]["code"]) == (3, "ROOT_INACCESSIBLE"), done.stderr


@pytest.mark.parametrize("command", [["status"], ["config", "print"], ["ask", "why"]])
@pytest.mark.parametrize("text", ["servers: {}\n", "rag:\n  k_default: many\n", "rag: [\n"])
def test_wrong_settings_end_every_command_with_2(here: Quick, project: Path, command: list[str], text: str) -> None:
    (project / ".dir2mcp.yaml").write_text(text)
    outcome = here(*command, "--json")
    assert (outcome.code, outcome.json["data"]["code"]) == (2, "CONFIG_INVALID")


def test_what_follows_two_dashes_is_a_question_even_if_it_looks_like_a_flag(here: Quick) -> None:
    outcome = here("ask", "--dir", "nowhere", "--", "--json")
    assert (outcome.code, outcome.stdout) == (3, "")


@pytest.mark.parametrize(("flags", "enabled"), [(["--x402", "off"], False), ([], True)])
def test_payments_that_the_file_enables_can_be_switched_off(
    would_serve: Any, project: Path, flags: list[str], enabled: bool
) -> None:
    (project / ".dir2mcp.yaml").write_text("x402:\n  enabled: true\n")
    _, settings = would_serve("up", "--trust", *flags)
    assert settings.x402.enabled is enabled


def test_help_teaches_every_command_and_every_global_flag(here: Quick) -> None:
    general = here().stdout
    for word in ("up", "status", "ask", "reindex", "config", "version", "Exit codes"):
        assert word in general
    for command in (["up"], ["ask"], ["config", "init"]):
        text = here(*command, "--help").stdout
        for flag in ("--dir", "--config", "--state-dir", "--json", "--non-interactive", "--quiet"):
            assert flag in text


def test_the_version_is_the_contracts(here: Quick) -> None:
    assert here("version").stdout.startswith("dir2mcp 0.4.0")
    assert here("version", "--json").json["dir2mcp"] == "0.4.0"
