"""Which keys are required, and how missing ones are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from armarium.capabilities.corpus.commands.connection import ConnectionInfo, choose_token_source
from armarium.capabilities.corpus.commands.provider_keys import MissingKey
from armarium.capabilities.corpus.commands.settings_loader import LoadedSettings, Location, load
from armarium.capabilities.corpus.commands.wizard import supply_missing_keys
from armarium.foundation.errors import ConfigError
from support.dir2mcp_command import TEMPLATE


def loaded(directory: Path, text: str = "", **environ: str) -> LoadedSettings:
    (directory / ".dir2mcp.yaml").write_text(text)
    return load(Location(directory, directory / ".dir2mcp.yaml"), environ)


def missing(directory: Path, text: str, **environ: str) -> list[str]:
    return loaded(directory, text, **environ).keys.missing


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("embedding:\n  provider: local", []),
        ("embedding:\n  provider: mistral", ["MISTRAL_API_KEY"]),
        ("chat:\n  provider: mistral", ["MISTRAL_API_KEY"]),
        ("mistral:\n  api_key: ${MISTRAL_API_KEY}", ["MISTRAL_API_KEY"]),
        ("mistral:\n  api_key: ${MY_KEY}", ["MY_KEY"]),
        ("mistral:\n  api_key: ${MISTRAL_API_KEY}\nembedding:\n  provider: local\nchat:\n  provider: none", []),
        ("mistral:\n  api_key: given", []),
        ("ingest:\n  images:\n    mode: ocr_on", ["MISTRAL_API_KEY"]),
        ("ingest:\n  audio:\n    mode: on", ["MISTRAL_API_KEY"]),
        ("ingest:\n  audio:\n    mode: on\nstt:\n  provider: elevenlabs", ["ELEVENLABS_API_KEY"]),
        ("stt:\n  elevenlabs:\n    api_key: ${ELEVENLABS_API_KEY}\n    model: scribe", []),
        ("openai:\n  api_key: ${OPENAI_API_KEY}", []),
        (TEMPLATE.read_text(), ["MISTRAL_API_KEY"]),
    ],
)
def test_a_key_is_missing_only_where_something_asks_for_it(tmp_path: Path, text: str, names: list[str]) -> None:
    assert missing(tmp_path, text) == names


def test_the_variable_supplies_the_required_key(tmp_path: Path) -> None:
    assert missing(tmp_path, TEMPLATE.read_text(), MISTRAL_API_KEY="m") == []
    assert missing(tmp_path, "mistral:\n  api_key: ${MY_KEY}", MY_KEY="m") == []


def test_a_missing_key_is_reported_as_the_contract_requires(tmp_path: Path) -> None:
    with pytest.raises(MissingKey) as error:
        supply_missing_keys(loaded(tmp_path, "embedding:\n  provider: mistral"), interactive=False)
    assert error.value.code == "CONFIG_INVALID"
    assert error.value.message == "Missing MISTRAL_API_KEY"


@pytest.mark.parametrize(
    ("environ", "key"),
    [
        ({}, "of-the-file"),
        ({"MISTRAL_API_KEY": "of-the-variable"}, "of-the-variable"),
        ({"MISTRAL_API_KEY": "usual", "DIR2MCP_MISTRAL__API_KEY": "of-the-setting"}, "of-the-setting"),
    ],
)
def test_the_environment_wins_over_a_key_in_the_file(tmp_path: Path, environ: dict[str, str], key: str) -> None:
    found = loaded(tmp_path, "mistral:\n  api_key: of-the-file", **environ).corpus_settings().mistral.api_key
    assert found is not None
    assert found.get_secret_value() == key


def test_an_endpoint_of_ones_own_gets_no_key_that_was_not_named_for_it(tmp_path: Path) -> None:
    quiet = loaded(tmp_path, "", OPENAI_API_KEY="canary", COHERE_API_KEY="canary")
    assert quiet.corpus_settings().openai.api_key is None
    assert quiet.corpus_settings().rerank.api_key is None
    named = loaded(tmp_path, "openai:\n  api_key: ${OPENAI_API_KEY}", OPENAI_API_KEY="mine")
    assert named.corpus_settings().openai.api_key is not None


def test_a_secret_file_others_can_read_stops_the_start(tmp_path: Path) -> None:
    secret_file = tmp_path / ".dir2mcp" / "secret.env"
    secret_file.parent.mkdir()
    secret_file.write_text("MISTRAL_API_KEY=m\n")
    secret_file.chmod(0o644)
    with pytest.raises(ConfigError):
        loaded(tmp_path)


@pytest.mark.parametrize(
    ("auth", "environ", "flagged", "source"),
    [
        ("", {}, False, "secret.token"),
        ("", {"DIR2MCP_AUTH_TOKEN": "t"}, False, "env"),
        ("mode: none", {}, False, "none"),
        ("mode: none", {"DIR2MCP_AUTH_TOKEN": "t"}, False, "env"),
        ("mode: none", {"DIR2MCP_AUTH_TOKEN": "t"}, True, "none"),
        ("{mode: file, token_file: t}", {"DIR2MCP_AUTH_TOKEN": "t"}, False, "env"),
        ("{mode: file, token_file: t}", {"DIR2MCP_AUTH_TOKEN": "t"}, True, "file"),
        ("token_file: t", {}, False, "file"),
        ("{token_env: OTHER}", {"DIR2MCP_AUTH_TOKEN": "t"}, False, "secret.token"),
        ("{token_env: DIR2MCP_NOTES_TOKEN}", {"DIR2MCP_NOTES_TOKEN": "t"}, False, "env"),
    ],
)
def test_a_flag_decides_on_the_token_before_the_environment_and_that_before_the_file(
    tmp_path: Path, auth: str, environ: dict[str, str], flagged: bool, source: str
) -> None:
    text = f"security:\n  auth:\n    {auth}\n" if auth else ""
    assert choose_token_source(loaded(tmp_path, text, **environ), environ, chosen_by_flag=flagged).kind == source


@pytest.mark.parametrize(("flagged", "words"), [(True, "--auth file:"), (False, "security.auth.token_file: ")])
def test_a_token_file_is_reported_with_the_flag_or_setting_that_selected_it(
    tmp_path: Path, flagged: bool, words: str
) -> None:
    settings = "security:\n  auth:\n    mode: file\n    token_file: my.token\n"
    found = choose_token_source(loaded(tmp_path, settings), {}, chosen_by_flag=flagged)
    lines = "\n".join(ConnectionInfo("http://127.0.0.1:1/mcp", found).lines())
    assert f"Bearer (source=file, from {words}{tmp_path / 'my.token'})" in lines


@pytest.mark.parametrize("setting", ["mistral.api_key", "stt.elevenlabs.api_key", "openai.api_key"])
def test_the_settings_of_a_directory_name_no_file_as_a_key(tmp_path: Path, setting: str) -> None:
    secret = tmp_path / "id"
    secret.write_text("canary-of-the-user")
    *sections, last = setting.split(".")
    lines = [f"{'  ' * depth}{name}:" for depth, name in enumerate(sections)]
    text = "\n".join([*lines, f"{'  ' * len(sections)}{last}: ${{file:{secret}}}"])
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, text)
    assert setting in refused.value.message
    assert "canary" not in str(refused.value)


def test_a_token_file_is_relative_to_the_directory_and_must_be_named(tmp_path: Path) -> None:
    found = choose_token_source(
        loaded(tmp_path, "security:\n  auth:\n    token_file: my.token"), {}, chosen_by_flag=False
    )
    assert (found.kind, found.place) == ("file", str(tmp_path / "my.token"))
    with pytest.raises(ConfigError):
        choose_token_source(loaded(tmp_path, "security:\n  auth:\n    mode: file"), {}, chosen_by_flag=False)
