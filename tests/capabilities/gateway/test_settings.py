"""The gateway's settings, its switch, its doctor checks, and opening it without servers."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from pydantic import ValidationError

from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS, SYNTHESIZED
from armarium.capabilities.gateway.manifest import MANIFEST
from armarium.capabilities.gateway.settings import FEATURE_VARIABLE, GatewaySettings, is_enabled
from armarium.capability import Facilities
from armarium.foundation.errors import ArmariumError
from armarium.foundation.events import Events
from armarium.foundation.security.identity import LOCAL
from armarium.foundation.settings.model import CoreSettings
from armarium.server import open_server
from armarium.settings import Settings
from armarium.surfaces.dispatch import Caller


def _settings(directory: Path, **gateway: object) -> CoreSettings:
    return Settings.model_validate(
        {
            "state_dir": str(directory / "state"),
            "audit": {"enabled": False},
            "gateway": {"config_dir": str(directory / "config"), **gateway},
        }
    )


@pytest.mark.contract("G9-1")
@pytest.mark.parametrize(
    ("said", "enabled"), [("false", False), ("0", False), ("Off", False), ("true", True), ("", True)]
)
def test_the_environment_can_switch_the_gateway_off(said: str, enabled: bool) -> None:
    assert is_enabled(GatewaySettings(), {FEATURE_VARIABLE: said}) is enabled
    assert is_enabled(GatewaySettings(enabled=False), {FEATURE_VARIABLE: said}) is False


@pytest.mark.contract("G1-3", "G16-3")
async def test_without_any_file_of_servers_the_three_tools_are_there(tmp_path: Path) -> None:
    async with open_server(_settings(tmp_path)) as armarium:
        (gateway,) = armarium.capabilities
        assert [tool.name for tool in gateway.tools] == [DISCOVER, RAW_RESULTS, SYNTHESIZED]
        assert {route.path_of("gateway") for route in gateway.routes} >= {"/config", "/rag/search", "/rag/synthesize"}


async def test_switched_off_it_is_not_opened_and_the_server_starts_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config/overrides").mkdir(parents=True)
    (tmp_path / "config/overrides/rag-mcp.json").write_text("not json")
    monkeypatch.setenv(FEATURE_VARIABLE, "false")
    async with open_server(_settings(tmp_path)) as armarium:
        assert armarium.capabilities == []


async def test_a_server_is_not_started_before_somebody_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "config/defaults").mkdir(parents=True)
    entry = {"command": "no-such-program-anywhere"}
    (tmp_path / "config/defaults/rag-mcp.json").write_text(json.dumps({"late": entry}))
    async with open_server(_settings(tmp_path)) as armarium:
        assert armarium.capabilities[0].name == "gateway"


async def test_a_broken_file_of_servers_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "config/overrides").mkdir(parents=True)
    (tmp_path / "config/overrides/rag-mcp.json").write_text('{"docs": {"comand": "x"}}')
    with pytest.raises(ArmariumError) as caught:
        async with open_server(_settings(tmp_path)):
            pass
    assert caught.value.code == "CONFIG_INVALID"
    assert "docs.comand" in caught.value.message


def test_secrets_of_the_settings_are_not_written_out() -> None:
    settings = GatewaySettings.model_validate({"tokens": {"secret": "a secret that is long enough"}})
    assert "long enough" not in settings.model_dump_json() + repr(settings)


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValidationError):
        GatewaySettings.model_validate({"tokens": {"secret": "short"}})


async def test_nobody_can_have_a_program_started_by_writing_a_file_of_servers_in_a_root(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    root = {"name": "all", "path": str(tmp_path), "allowed_tools": ["*"], "read_only": False}
    settings = Settings.model_validate(
        {
            "state_dir": str(tmp_path / "state"),
            "audit": {"enabled": False},
            "sandbox": {"roots": [root]},
            "gateway": {"config_dir": str(tmp_path / "config")},
        }
    )
    entry = json.dumps({"evil": {"command": "evil"}})
    async with open_server(settings) as armarium:
        for folder in ("overrides", "defaults"):
            wanted = {"root": "all", "path": f"config/{folder}/rag-mcp.json", "content": entry, "mode": "overwrite"}
            outcome = await armarium.dispatcher.outcome(Caller(LOCAL, "test"), "write_file", wanted)
            assert outcome.error is not None
            assert outcome.error.code == "PATH_IGNORED"


def _findings(directory: Path, registry: str | None) -> list[tuple[str, str]]:
    if registry is not None:
        (directory / "config/overrides").mkdir(parents=True)
        (directory / "config/overrides/rag-mcp.json").write_text(registry)
    section = GatewaySettings(config_dir=str(directory / "config"))
    return [(found.state, found.message) for found in MANIFEST.check(section, Facilities(Events(), directory))]


def test_the_doctor_tells_how_many_servers_there_are_and_which_programs_are_missing(tmp_path: Path) -> None:
    registry = {"here": {"command": "sh"}, "gone": {"command": "no-such-program"}, "off": {"enabled": False}}
    ok, missing = _findings(tmp_path, json.dumps(registry))
    assert ok == ("ok", "2 of 3 enabled")
    assert missing[0] == "warn"
    assert "gone runs no-such-program" in missing[1]


def test_the_doctor_warns_of_an_exclusive_server_that_everybody_sees(tmp_path: Path) -> None:
    alone = {"command": "sh", "is_exclusive": True}
    found = _findings(tmp_path, json.dumps({"shown": alone, "hidden": {**alone, "groups": ["legal"]}}))
    warned = [message for state, message in found if state == "warn"]
    assert warned == ["shown has `is_exclusive` and no groups, so every caller sees it"]


def test_the_doctor_tells_every_mistake_in_the_file_of_servers(tmp_path: Path) -> None:
    found = _findings(tmp_path, '{"a": {"comand": "x"}, "b": {"gruops": []}}')
    assert {state for state, _ in found} == {"fail"}
    assert "a.comand" in str(found)
    assert "b.gruops" in str(found)


def test_without_a_file_of_servers_the_doctor_is_content(tmp_path: Path) -> None:
    (tmp_path / "config/defaults").mkdir(parents=True)
    assert _findings(tmp_path, None) == [("ok", "0 of 0 enabled")]


def test_the_doctor_names_a_directory_that_has_no_folder_for_files_of_servers(tmp_path: Path) -> None:
    ((state, message),) = _findings(tmp_path, None)
    assert (state, message) == ("warn", f"neither overrides nor defaults exists in {tmp_path / 'config'}")


async def test_a_directory_without_folders_for_files_of_servers_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "armarium")
    for made in (False, True):
        if made:
            (tmp_path / "config/overrides").mkdir(parents=True)
        async with open_server(_settings(tmp_path)):
            warned = [record for record in caplog.records if "no server configuration" in record.getMessage()]
        assert len(warned) == 1
        assert vars(warned[0])["config_dir"] == str(tmp_path / "config")
