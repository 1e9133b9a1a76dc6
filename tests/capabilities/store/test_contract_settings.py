"""Settings files with the contract's own names, and the flags of tools."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from armarium.capabilities.store.settings import StoreSettings
from armarium.foundation.errors import ConfigError
from armarium.foundation.security.identity import key_hash
from armarium.foundation.settings.loader import load_settings
from armarium.settings import Settings
from armarium.surfaces.cli.doctor import run_checks
from support.client import connected, texts_of
from support.server import ServerProcess, installed_command, write_config

PAGE = Path(__file__).parents[3] / "docs" / "capabilities" / "store-settings.md"
# §15 of the contract, each with a value that is not the default.
FILES: dict[str, Any] = {
    "allow_root_wipe": True,
    "max_payload_bytes": 1001,
    "max_file_bytes": 1002,
    "max_project_bytes": 1003,
    "list_limit_default": 11,
    "list_limit_max": 12,
    "lock_timeout_ms": 13,
    "delete_retention_days": 14,
    "search.enabled": False,
    "search.limit_default": 3,
    "search.limit_max": 4,
    "search.vector_candidates": 15,
    "search.bm25_candidates": 16,
    "search.rerank.model": "rerank-x",
    "search.rerank.endpoint": "https://rerank.example/v1/rerank",
    "search.rerank.timeout_ms": 17,
    "search.fallback.semantic_weight": 0.1,
    "search.fallback.lexical_weight": 0.9,
    "index.workers": 5,
    "index.batch_size": 6,
    "index.retry_max": 7,
    "index.retry_backoff_ms": 8,
    "index.slo_p95_seconds": 9.0,
    "security.encryption_keks": {1: "0123456789abcdef", 2: "fedcba9876543210"},
    "security.credential_cache_prefix": "mcp:x",
    "security.credential_cache_ttl_seconds": 18,
}
TOOLS = [f"file_{verb}" for verb in ("stat", "read", "write", "delete", "rename", "list", "search")]


def nested(names: dict[str, Any]) -> dict[str, Any]:
    """Dotted names as a file has them."""
    whole: dict[str, Any] = {}
    for name, value in names.items():
        *parents, last = name.split(".")
        section = whole
        for parent in parents:
            section = section.setdefault(parent, {})
        section[last] = value
    return whole


def value_of(section: Any, name: str) -> Any:
    for step in name.split("."):
        section = getattr(section, step)
    return section


def loaded(tmp_path: Path, values: dict[str, Any]) -> Any:
    file = tmp_path / "armarium.yaml"
    file.write_text(yaml.safe_dump(values))
    return load_settings(Settings, file)


@pytest.mark.contract("S15-3")
@pytest.mark.parametrize("form", [nested, dict], ids=["sections", "dots"])
def test_every_setting_of_the_contract_is_read_under_its_name(tmp_path: Path, form: Any) -> None:
    settings = loaded(tmp_path, form({f"settings.mcp.files.{name}": value for name, value in FILES.items()}))
    for name, value in FILES.items():
        read = value_of(settings.store, name)
        if name == "security.encryption_keks":
            read = {kek_id: secret.get_secret_value() for kek_id, secret in read.items()}
        assert read == value != value_of(StoreSettings(), name), name
    assert settings.store.search.rerank.is_used
    assert settings.renamed["settings.mcp.files.search.limit_max"] == "store.search.limit_max"


def test_both_ways_of_naming_go_together_but_not_for_one_setting(tmp_path: Path) -> None:
    contract = {"mcp": {"files": {"search": {"limit_max": 9}}}}
    settings = loaded(tmp_path, {"settings": contract, "store": {"search": {"limit_default": 2}}})
    assert (settings.store.search.limit_max, settings.store.search.limit_default) == (9, 2)
    with pytest.raises(ConfigError) as twice:
        loaded(tmp_path, {"settings": contract, "store": {"search": {"limit_max": 9}}})
    assert "`store.search.limit_max` and `settings.mcp.files.search.limit_max` are both set" in twice.value.message


@pytest.mark.parametrize(
    ("settings", "message", "hint"),
    [
        ({"files": {"max_file_bytes": "many"}}, "`settings.mcp.files.max_file_bytes`: Input should be", None),
        (
            {"files": {"max_file_byte": 1}},
            "unknown setting `settings.mcp.files.max_file_byte`",
            "did you mean `max_file_bytes`?",
        ),
        ({"files": {"index": {"retry_max": -1}}}, "`settings.mcp.files.index.retry_max`", None),
        ({"files": {"list_limit_max": 5}}, "`settings.mcp.files`: a default limit is larger than its maximum", None),
        (
            {"files": {"security": {"encryption_keks": {"a": "0123456789abcdef"}}}},
            "`settings.mcp.files.security.encryption_keks.a",
            None,
        ),
        ({"files": 7}, "`settings.mcp.files`", None),
        ({"tools": {"file_wirte": {"enabled": False}}}, "`settings.mcp.tools`: there is no tool `file_wirte`", None),
        (
            {"tools": {"file_write": {"enabled": "sometimes"}}},
            "`settings.mcp.tools.file_write`: Input should be a valid boolean",
            None,
        ),
        ({"tools": {"mcp_pipe": {"enabled": "sometimes"}}}, "`settings.mcp.tools.mcp_pipe.enabled`", None),
        (
            {"web": {"port": 1}},
            "unknown setting `settings.mcp.web`",
            "known here: settings.mcp.files, settings.mcp.tools, settings.mcp.tools.mcp_pipe",
        ),
    ],
)
def test_a_mistake_is_told_at_the_name_in_the_file(
    tmp_path: Path, settings: dict[str, Any], message: str, hint: str | None
) -> None:
    with pytest.raises(ConfigError) as mistake:
        loaded(tmp_path, {"settings": {"mcp": settings}})
    assert message in mistake.value.message
    assert mistake.value.hint == hint


@pytest.mark.contract("S5.3-2")
def test_flags_switch_tools_off_and_those_of_other_services_are_only_noted(tmp_path: Path) -> None:
    flags = {"file_write": {"enabled": False}, "file_read": False, "web_search": {"enabled": True}}
    settings = loaded(tmp_path, {"settings": {"mcp": {"tools": flags | {"mcp_pipe": {"enabled": False}}}}})
    offered = settings.store.tools
    assert [tool for tool in TOOLS if not offered.offers(tool)] == ["file_read", "file_write"]
    assert offered.of_other_servers == ["web_search"]
    assert settings.pipe.enabled is False
    nothing = loaded(tmp_path, {"settings.mcp.tools.file_io.enabled": False})
    assert not any(nothing.store.tools.offers(tool) for tool in TOOLS)


@pytest.mark.contract("S15-3")
def test_the_page_lists_every_setting_of_the_contract_with_its_name_here() -> None:
    rows = dict(
        re.findall(r"^\| `(settings\.mcp\.\S+)` \| `(\S+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    )
    contract = {f"settings.mcp.files.{name}" for name in FILES} | {
        f"settings.mcp.tools.{tool}.enabled" for tool in TOOLS
    }
    assert contract <= set(rows)
    for ours in rows.values():
        value_of(Settings(store=StoreSettings()), ours)


def test_doctor_lists_what_is_renamed(tmp_path: Path) -> None:
    file = tmp_path / "armarium.yaml"
    settings = {"mcp": {"files": {"max_file_bytes": 5, "search": {"limit_max": 9}}}}
    file.write_text(yaml.safe_dump({"state_dir": str(tmp_path / "state"), "settings": settings}))
    [found] = [result for result in run_checks(file) if result.subject == "renamed settings"]
    assert found.state == "ok"
    assert "`settings.mcp.files.max_file_bytes` is `store.max_file_bytes`" in found.message
    assert "`settings.mcp.files.search.limit_max` is `store.search.limit_max`" in found.message
    file.write_text(yaml.safe_dump({"state_dir": str(tmp_path / "state"), "store": {}}))
    assert "renamed settings" not in {result.subject for result in run_checks(file)}


@pytest.mark.contract("S5.3-2")
async def test_a_tool_that_is_off_is_nowhere_and_the_rest_is_as_the_contract_configures_it(
    store_dsn: str, tmp_path: Path
) -> None:
    files = {"dsn": store_dsn, "max_file_bytes": 20, "search": {"enabled": False}}
    flags = {"file_delete": {"enabled": False}, "file_purge": {"enabled": False}}
    config = write_config(
        tmp_path,
        {
            "state_dir": str(tmp_path / "state"),
            "server": {"port": 0},
            "security": {"auth": "keys", "keys": [{"username": "ann", "key_sha256": key_hash("ann's key")}]},
            "settings": {"mcp": {"files": files, "tools": flags}},
        },
    )
    with ServerProcess([installed_command("armarium"), "serve", "--config", str(config)]) as process:
        noted = process.wait_for_log(lambda line: "renamed" in line)
        assert noted["renamed"]["settings.mcp.files.max_file_bytes"] == "store.max_file_bytes"
        async with connected(process.url, key="ann's key") as client:
            listed = {tool.name for tool in (await client.mcp.list_tools()).tools}
            assert {"file_write", "file_search", "mcp_pipe"} <= listed
            assert not {"file_delete", "file_purge"} & listed
            too_large = await client.result("file_write", {"project": "p", "path": "/a", "content": "x" * 21})
            assert '"code":"PAYLOAD_TOO_LARGE"' in texts_of(too_large)[0]
            await client.call("file_write", project="p", path="/a", content="tea")
            with pytest.raises(Exception, match="unknown tool"):
                await client.result("file_delete", {"project": "p", "path": "/a"})
            steps = [{"id": "d", "tool": "file_delete", "args": {"project": "p", "path": "/a"}}]
            piped = await client.result("mcp_pipe", {"steps": steps})
            assert piped.is_error
            assert "file_delete" in texts_of(piped)[0]
        async with httpx.AsyncClient(base_url=process.url, headers={"authorization": "Bearer ann's key"}) as http:
            file = "/api/store/p/file"
            assert (await http.delete(file, params={"path": "/a"})).status_code == 405
            assert (await http.post("/api/store/p/purge", json={"path": "/a"})).status_code == 404
            assert (await http.get(file, params={"path": "/a"})).json()["content"] == "tea"
            described = (await http.get("/api/openapi.json")).json()["paths"]
    assert set(described["/api/store/{project}/file"]) == {"get", "put", "patch"}
    assert "/api/store/{project}/purge" not in described
