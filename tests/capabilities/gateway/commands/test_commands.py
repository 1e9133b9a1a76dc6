"""`armarium gateway token-key` prints the key of a server, and `armarium rag-server` verifies tokens with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityTokens, CapabilityVerifier
from armarium.facilities import facilities_for
from armarium.foundation.settings.model import CoreSettings
from armarium.surfaces.cli.host import Host
from support.command_line import InThisProcess
from support.trusted import trust

SECRET = "a secret that is long enough"


@pytest.fixture
def settings(project: Path, environ: dict[str, str]) -> Path:
    file = project / "armarium.yaml"
    file.write_text(f"gateway: {{tokens: {{secret: {SECRET}}}}}\n")
    trust(project, environ)
    return file


def test_the_printed_key_verifies_tokens_of_its_server(quick: InThisProcess, settings: Path) -> None:
    key = quick("gateway", "token-key", "lawRag").stdout.strip()
    token, _ = CapabilityTokens(SECRET.encode()).issue("lawRag", "lex", ["files"])
    CapabilityVerifier("lawRag", key).verify(token, "lex", ["files"])
    assert quick("gateway", "token-key", "lawRag", "--json").json == {"server": "lawRag", "key": key}
    assert quick("gateway", "token-key", "fogRag").stdout.strip() != key
    assert SECRET not in key


def test_the_secret_can_be_set_in_the_environment(
    quick: InThisProcess, settings: Path, environ: dict[str, str]
) -> None:
    key = quick("gateway", "token-key", "lawRag").stdout
    settings.write_text("gateway: {}\n")
    trust(settings.parent, environ)
    assert quick("gateway", "token-key", "lawRag", ARMARIUM_GATEWAY__TOKENS__SECRET=SECRET).stdout == key


@pytest.mark.parametrize("section", ["gateway: {}", "server: {port: 9000}"])
def test_without_a_secret_there_is_no_key(
    quick: InThisProcess, settings: Path, environ: dict[str, str], section: str
) -> None:
    settings.write_text(section)
    trust(settings.parent, environ)
    outcome = quick("gateway", "token-key", "lawRag")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "gateway.tokens.secret" in outcome.stderr


@pytest.mark.parametrize("name", ["armarium", "law rag", "../law", ""])
def test_an_invalid_server_name_has_no_key(quick: InThisProcess, settings: Path, name: str) -> None:
    outcome = quick("gateway", "token-key", name)
    assert (outcome.code, outcome.stdout) == (1, "")
    assert "rag-mcp.json" in outcome.stderr


def test_a_rag_server_refuses_a_file_without_a_key(quick: InThisProcess, project: Path) -> None:
    (project / "cases").mkdir()
    (project / "law.key").write_text(SECRET)
    outcome = quick("rag-server", "cases", "--capability-key-file", "law.key")
    assert outcome.code == 2
    assert "armarium gateway token-key cases" in outcome.stderr
    assert SECRET not in outcome.stderr


def test_a_rag_server_does_not_search_its_key(
    quick: InThisProcess, settings: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[CoreSettings] = []
    monkeypatch.setattr(Host, "serve_stdio", lambda host, settings, **more: served.append(settings))
    (project / "cases").mkdir()
    (project / "cases/law").write_text(quick("gateway", "token-key", "cases").stdout)
    assert quick("rag-server", "cases", "--capability-key-file", "cases/law").code == 0
    assert [*facilities_for(served[0]).settings_files] == [project / "cases/law"]
