"""`.dir2mcp.yaml`: the contract's template, what overrides what, and how errors are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from armarium.capabilities.corpus.commands.settings import Dir2McpSettings, parse_listen, plain_values
from armarium.capabilities.corpus.commands.settings_loader import Location, load
from armarium.foundation.errors import ConfigError
from armarium.foundation.settings.loader import checked
from armarium.settings import Settings
from support.command_line import Outcome
from support.dir2mcp_command import TEMPLATE, Quick


def printed(outcome: Outcome) -> dict[str, Any]:
    assert outcome.code == 0, outcome.stderr
    return yaml.safe_load(outcome.stdout)


def write(project: Path, text: str) -> None:
    (project / ".dir2mcp.yaml").write_text(text)


def test_the_template_of_the_contract_loads_word_for_word_and_says_what_the_defaults_say(template: Path) -> None:
    loaded = load(Location(template.parent, trust=True), environ={"MISTRAL_API_KEY": "m", "ELEVENLABS_API_KEY": "e"})
    of_template, defaults = plain_values(loaded.settings), plain_values(Dir2McpSettings())
    # The defaults may guard against more than the template, never against less.
    written = yaml.safe_load(TEMPLATE.read_text())["security"]
    assert of_template["security"].pop("secret_patterns") == written["secret_patterns"]
    assert len(defaults["security"].pop("secret_patterns")) >= len(written["secret_patterns"])
    default_excludes = set(defaults["security"].pop("path_excludes"))
    assert set(of_template["security"].pop("path_excludes")) == default_excludes >= set(written["path_excludes"])
    assert of_template == defaults


def test_the_template_reaches_the_server_and_the_corpus(template: Path) -> None:
    loaded = load(Location(template.parent, trust=True), environ={"MISTRAL_API_KEY": "m", "ELEVENLABS_API_KEY": "e"})
    corpus = loaded.corpus_settings()
    assert corpus.mistral.api_key is not None
    assert corpus.mistral.api_key.get_secret_value() == "m"
    assert corpus.stt.elevenlabs.api_key is not None
    assert corpus.stt.elevenlabs.api_key.get_secret_value() == "e"
    assert "**/id_rsa" in corpus.path_excludes
    core = loaded.core_settings(Settings, "auto")
    assert (core.server.host, core.server.port) == ("127.0.0.1", 0)
    assert core.server.allowed_origins == ("http://localhost:*", "http://127.0.0.1:*")
    assert (core.sessions.inactivity_timeout, core.sessions.max_lifetime) == (86400, None)
    assert core.state_path() == template.parent / ".dir2mcp"


def test_excluding_one_more_path_keeps_the_default_excludes(project: Path, here: Quick) -> None:
    write(project, "security:\n  path_excludes: ['drafts/']\n")
    in_effect = load(Location(project), environ={}).corpus_settings().path_excludes
    assert {"drafts/", "**/.env", "**/*.pem"} <= set(in_effect)
    assert printed(here("config", "print"))["security"]["path_excludes"] == list(in_effect)


def test_an_origin_elsewhere_or_with_a_port_stays_exactly_itself(project: Path) -> None:
    write(
        project, "security:\n  allowed_origins: ['https://a.example', 'http://localhost:3000', 'http://[::1]', 'null']"
    )
    core = load(Location(project, trust=True), environ={}).core_settings(Settings, "auto")
    assert core.server.allowed_origins == ("https://a.example", "http://localhost:3000", "http://[::1]:*", "null")


def test_the_server_knows_the_files_with_its_settings_and_secrets(project: Path) -> None:
    config = project / "conf.yaml"
    tls = "tls:\n    cert_file: chain\n    key_file: private"
    config.write_text(f"server:\n  {tls}\nsecurity:\n  auth:\n    mode: file\n    token_file: token\n")
    core = load(Location(project, config), environ={}).core_settings(Settings, "auto")
    names = ("chain", "private", "token", ".dir2mcp/secret.env", "conf.yaml")
    assert core.files == tuple(project / name for name in names)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [('"0"', None), ("0", None), ("off", None), ("90s", 90), ("1h30m", 5400), ("24h0m0s", 86400), ("7d", 604800)],
)
def test_a_lifetime_is_a_duration_and_zero_means_none(project: Path, text: str, seconds: float | None) -> None:
    write(project, f"server:\n  session_max_lifetime: {text}\n")
    assert load(Location(project), environ={}).settings.server.session_max_lifetime == seconds


@pytest.mark.parametrize("words", ["off", "on", "no", "yes"])
def test_words_that_older_yaml_takes_for_truth_values_stay_words(project: Path, words: str) -> None:
    write(project, f"ingest:\n  audio:\n    mode: {words}\n")
    if words in ("off", "on"):
        assert load(Location(project), environ={"MISTRAL_API_KEY": "m"}).settings.ingest.audio.mode == words
    else:
        with pytest.raises(ConfigError):
            load(Location(project), environ={})


def test_flags_win_over_variables_variables_over_the_file_and_the_file_over_defaults(project: Path) -> None:
    write(project, "server:\n  listen: 127.0.0.1:1\n  mcp_path: /file\nrag:\n  k_default: 3\n")
    environ = {"DIR2MCP_SERVER__LISTEN": "127.0.0.1:2", "DIR2MCP_SERVER__MCP_PATH": "/variable"}
    loaded = load(Location(project, trust=True), environ, {"server.listen": "127.0.0.1:3"}).settings
    assert (loaded.server.listen, loaded.server.mcp_path) == ("127.0.0.1:3", "/variable")
    assert (loaded.rag.k_default, loaded.rag.oversample_factor) == (3, 5)


def test_the_file_here_comes_before_the_one_in_the_directory_and_a_named_one_before_both(
    here: Quick, project: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    write(elsewhere, "rag:\n  k_default: 2\n")
    assert printed(here("config", "print", "--dir", elsewhere))["rag"]["k_default"] == 2
    write(project, "rag:\n  k_default: 3\n")
    assert printed(here("config", "print", "--dir", elsewhere))["rag"]["k_default"] == 3
    (tmp_path / "named.yaml").write_text("rag:\n  k_default: 4\n")
    named = here("config", "print", "--dir", elsewhere, "--config", tmp_path / "named.yaml")
    assert printed(named)["rag"]["k_default"] == 4


def test_a_name_in_braces_stands_for_a_variable(here: Quick, project: Path) -> None:
    write(project, "server:\n  mcp_path: /${PLACE}/mcp\n")
    assert printed(here("config", "print", "--trust", PLACE="notes"))["server"]["mcp_path"] == "/notes/mcp"
    unset = here("config", "print", "--trust")
    assert (unset.code, unset.stdout) == (2, "")
    assert unset.stderr.startswith("ERROR: CONFIG_INVALID: ")
    assert "PLACE" in unset.stderr


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("servers: {}", "did you mean `server`?"),
        ("ingest:\n  pdf:\n    mod: off", "did you mean `mode`?"),
        ("version: 2", "version"),
        ("server: [", "not valid YAML"),
        ("- a list", "mapping"),
        ("server:\n  listen: nowhere", "host:port"),
        ("server:\n  mcp_path: mcp", "/mcp"),
        ("server:\n  mcp_path: /health", "/health"),
        ("server:\n  session_max_lifetime: soon", "duration"),
        ("secrets:\n  file:\n    mode: '0644'", "0600"),
        ("secrets:\n  file:\n    mode: 0644", "0600"),
        ("x402:\n  facilitator_url: somewhere", "http"),
        ("x402:\n  route_policy:\n    tools_call:\n      network: base", "network"),
        ("x402:\n  route_policy:\n    tools_call:\n      price: cheap", "price"),
        ("rag:\n  k_default: 51", "k_default"),
        ("embedding:\n  provider: best", "provider"),
    ],
)
def test_a_mistake_in_the_file_ends_with_2_and_is_named(here: Quick, project: Path, text: str, reported: str) -> None:
    write(project, text)
    outcome = here("config", "print")
    assert outcome.code == 2
    assert outcome.stderr.startswith("ERROR: CONFIG_INVALID: ")
    assert reported in outcome.stderr


def test_a_file_that_is_not_there_ends_with_2(here: Quick) -> None:
    assert here("config", "print", "--config", "missing.yaml").code == 2


def test_a_variable_that_is_no_setting_ends_with_2_and_the_nearest_name(here: Quick) -> None:
    outcome = here("config", "print", DIR2MCP_LISTEN="127.0.0.1:1")
    assert outcome.code == 2
    assert "DIR2MCP_SERVER__LISTEN" in outcome.stderr


def test_the_token_in_the_environment_is_not_taken_for_a_setting(here: Quick) -> None:
    assert here("config", "print", DIR2MCP_AUTH_TOKEN="t0ken").code == 0


def test_what_is_printed_is_a_file_of_settings_to_the_same_effect(here: Quick, project: Path, template: Path) -> None:
    first = here("config", "print", "--trust", MISTRAL_API_KEY="canary-key-1")
    (project / "again.yaml").write_text(first.stdout)
    again = here("config", "print", "--config", "again.yaml", MISTRAL_API_KEY="canary-key-1")
    assert printed(again) == printed(first)
    assert printed(first)["mistral"]["api_key"] == "${MISTRAL_API_KEY}"
    checked(Dir2McpSettings, printed(first), source="what was printed")
    assert "canary-key-1" not in first.stdout + first.stderr


def test_json_has_the_settings_and_the_sources_of_keys(here: Quick) -> None:
    outcome = here("--json", "config", "print", MISTRAL_API_KEY="canary-key-2")
    reported = json.loads(outcome.stdout)
    assert reported["config"]["server"]["mcp_path"] == "/mcp"
    found = reported["secret_sources"]["mistral.api_key"]
    assert found == {"name": "MISTRAL_API_KEY", "source": "env", "place": "MISTRAL_API_KEY"}
    assert "canary-key-2" not in outcome.stdout


def test_a_key_written_into_the_file_is_used_and_never_printed(here: Quick, project: Path) -> None:
    write(project, "mistral:\n  api_key: canary-key-3\nrag:\n  system_prompt: say canary-key-3 never\n")
    outcome = here("config", "print", "--json", "--trust")
    assert "canary-key-3" not in outcome.stdout + outcome.stderr
    assert outcome.json["secret_sources"]["mistral.api_key"]["source"] == "file"
    loaded = load(Location(project, trust=True), environ={})
    key = loaded.corpus_settings().mistral.api_key
    assert key is not None
    assert key.get_secret_value() == "canary-key-3"


def test_a_key_of_the_wrong_form_is_not_quoted_in_the_error(here: Quick, project: Path) -> None:
    write(project, "mistral:\n  api_key: canary-key-4\n  model: x\n")
    outcome = here("config", "print", "--json")
    assert outcome.code == 2
    assert "canary-key-4" not in outcome.stdout + outcome.stderr


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("localhost:8080", ("localhost", 8080)),
        ("[::1]:8080", ("::1", 8080)),
        (":65535", ("0.0.0.0", 65535)),
    ],
)
def test_an_address_to_listen_on_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_listen(text) == address


@pytest.mark.parametrize(
    "text", ["", "localhost", ":", "a:65536", "a:-1", "a:b", "::1:80", "[::1]", "a/b:1", "a@b:1", "[a]:1"]
)
def test_what_is_no_host_and_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_listen(text)
