"""Configuration files: read completely, or rejected with every mistake and its location."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.capabilities.gateway.config.files import (
    HttpTransport,
    ServerConfig,
    ServerSpec,
    StdioTransport,
    parse_entries,
    parse_entry,
    read_server_config,
)
from armarium.capabilities.gateway.config.schema import server_config_schema
from armarium.capabilities.gateway.errors import ServerConfigInvalid

CONTRACT_EXAMPLE: dict[str, Any] = {
    "docsRag": {
        "groups": ["users", "mcp_basic"],
        "is_exclusive": False,
        "description": "Company docs RAG",
        "enabled": True,
        "ui": {"icon": "book", "order": 10, "defaultSelected": True},
        "dataSources": [
            {
                "id": "handbook",
                "name": "Employee Handbook",
                "groups": ["users"],
                "authMode": "none",
                "scopes": ["read"],
                "defaultSelected": True,
            },
            {
                "id": "legal",
                "name": "Legal Docs",
                "groups": ["legal", "admin"],
                "authMode": "capability",
                "scopes": ["read"],
                "defaultSelected": False,
            },
        ],
        "command": "docs-rag",
        "args": ["--quiet"],
    },
    "notionRag": {"groups": ["users"], "description": "Notion workspace RAG", "enabled": False},
}


def write(directory: Path, place: str, servers: object) -> Path:
    file = directory / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(servers if isinstance(servers, str) else json.dumps(servers))
    return file


def read(directory: Path, environ: Mapping[str, str] | None = None) -> ServerConfig:
    return read_server_config(directory, environ or {})


def problems_of(value: object, name: str = "docsRag") -> list[str]:
    with pytest.raises(ServerConfigInvalid) as caught:
        parse_entries(json.dumps({name: value}).encode(), source="overrides/rag-mcp.json")
    assert caught.value.code == "registry_invalid"
    return list(caught.value.problems)


@pytest.mark.contract("G2-1", "G4-2")
def test_the_contracts_example_is_read_as_it_stands(tmp_path: Path) -> None:
    write(tmp_path, "defaults/rag-mcp.json", CONTRACT_EXAMPLE)
    registry = read(tmp_path)
    docs = registry.servers["docsRag"]
    assert (docs.kind, docs.groups, docs.is_exclusive, docs.enabled) == ("rag", ("users", "mcp_basic"), False, True)
    assert (docs.ui.icon, docs.ui.order, docs.ui.default_selected) == ("book", 10, True)
    assert docs.transport == StdioTransport("docs-rag", ("--quiet",))
    handbook, legal = docs.data_sources
    assert (handbook.id, handbook.auth_mode, handbook.default_selected) == ("handbook", "none", True)
    assert (legal.groups, legal.auth_mode, legal.scopes) == (("legal", "admin"), "capability", ("read",))
    assert registry.servers["notionRag"].transport is None
    assert registry.origins == {"rag": "defaults/rag-mcp.json", "generic": None}


@pytest.mark.contract("G16-3")
def test_without_files_there_are_no_servers(tmp_path: Path) -> None:
    assert read(tmp_path / "absent").servers == {}


@pytest.mark.contract("G16-2")
def test_an_override_replaces_the_whole_file_it_overrides(tmp_path: Path) -> None:
    write(tmp_path, "defaults/rag-mcp.json", CONTRACT_EXAMPLE)
    write(tmp_path, "overrides/rag-mcp.json", {"other": {"url": "https://rag.example/mcp"}})
    assert set(read(tmp_path).servers) == {"other"}


@pytest.mark.contract("G16-1")
def test_each_file_makes_servers_of_its_kind(tmp_path: Path) -> None:
    write(tmp_path, "defaults/rag-mcp.json", {"docs": {"command": "docs"}})
    write(tmp_path, "overrides/mcp.json", {"mcpServers": {"tools": {"type": "http", "url": "http://127.0.0.1:1/mcp"}}})
    servers = read(tmp_path).servers
    assert {name: server.kind for name, server in servers.items()} == {"docs": "rag", "tools": "generic"}
    assert servers["tools"].transport == HttpTransport("http://127.0.0.1:1/mcp")


def test_a_name_in_both_files_is_refused(tmp_path: Path) -> None:
    for place in ("defaults/rag-mcp.json", "defaults/mcp.json"):
        write(tmp_path, place, {"docs": {"command": "docs"}})
    with pytest.raises(ServerConfigInvalid, match="must be unique"):
        read(tmp_path)


def test_variables_are_filled_from_the_environment_and_stay_unfilled_where_they_are_shown(tmp_path: Path) -> None:
    servers = {
        "local": {"command": "docs", "env": {"KEY": "pre-${DOCS_KEY}-${OTHER}"}},
        "remote": {"url": "https://rag.example/mcp", "headers": {"Authorization": "Bearer ${DOCS_KEY}"}},
    }
    write(tmp_path, "overrides/rag-mcp.json", servers)
    registry = read(tmp_path, {"DOCS_KEY": "sesame", "OTHER": "${DOCS_KEY}"})
    local, remote = registry.servers["local"].transport, registry.servers["remote"].transport
    assert isinstance(local, StdioTransport)
    assert isinstance(remote, HttpTransport)
    assert local.env == {"KEY": "pre-sesame-${DOCS_KEY}"}, "filled once: a value is not looked at again"
    assert remote.headers == {"Authorization": "Bearer sesame"}
    assert "sesame" not in repr(registry)
    assert registry.entries["rag"]["remote"].headers == {"Authorization": "Bearer ${DOCS_KEY}"}


def test_a_missing_variable_is_named_with_its_place_unless_the_server_is_off(tmp_path: Path) -> None:
    entry: dict[str, Any] = {"command": "docs", "env": {"KEY": "${DOCS_KEY}"}}
    write(tmp_path, "overrides/rag-mcp.json", {"docs": entry})
    with pytest.raises(ServerConfigInvalid, match=r"`docs\.env\.KEY` needs the environment variable DOCS_KEY"):
        read(tmp_path)
    write(tmp_path, "overrides/rag-mcp.json", {"docs": {**entry, "enabled": False}})
    assert not read(tmp_path).servers["docs"].enabled


def test_an_unknown_key_is_refused_with_its_place_and_the_nearest_name() -> None:
    sources = [{"id": "a"}, {"id": "b", "gruops": ["users"]}]
    (problem,) = problems_of({"command": "docs", "dataSources": sources})
    assert "`docsRag.dataSources[1].gruops`" in problem
    assert "did you mean `groups`?" in problem
    (problem,) = problems_of({"command": "docs", "ui": {"defaultselected": True}})
    assert "`docsRag.ui.defaultselected`" in problem
    assert "did you mean `defaultSelected`?" in problem
    (problem,) = problems_of({"command": "docs", "zzz": 1})
    assert "known: groups, is_exclusive" in problem


def test_a_file_uses_the_contracts_names_only() -> None:
    (problem,) = problems_of({"command": "docs", "data_sources": []})
    assert "did you mean `dataSources`?" in problem


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, "overrides/rag-mcp.json", {"one": {"command": 5}, "two": {"command": "x", "groups": "users"}})
    write(tmp_path, "overrides/mcp.json", "{")
    with pytest.raises(ServerConfigInvalid) as caught:
        read(tmp_path)
    assert len(caught.value.problems) == 3
    assert "(and 2 more)" in caught.value.message
    assert str(tmp_path) not in str(caught.value.problems)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "neither `command` nor `url`"),
        ({"command": "x", "url": "http://h/"}, "both `command` and `url`"),
        ({"type": "http", "command": "x"}, "is of type http"),
        ({"type": "stdio", "url": "http://h/"}, "is of type stdio"),
        ({"url": "http://h/", "args": ["x"]}, "without a `command`"),
        ({"command": "x", "headers": {"a": "b"}}, "without a `url`"),
        ({"url": "ftp://h/"}, "must be an http"),
        ({"url": "http://"}, "must be an http"),
        ({"url": "http://h:99999/"}, "must be an http"),
        ({"url": "https://me:sesame@h/"}, "use `headers`"),
        ({"command": "x", "dataSources": [{"id": "a"}, {"id": "a"}]}, "more than once"),
        ({"command": "x", "dataSources": [{}]}, "`docsRag.dataSources[0].id` is required"),
        ({"command": "x", "dataSources": [{"id": "a", "authMode": "magic"}]}, "authMode"),
        ({"command": "x", "timeouts": {"call_s": 0}}, "timeouts.call_s"),
        ({"command": ""}, "docsRag.command"),
        ([], "`docsRag` must be an object, not a list"),
        (None, "`docsRag` must be an object, not null"),
        ({"command": "x", "enabled": "yes"}, "`docsRag.enabled` must be true or false"),
        ({"command": "x", "is_exclusive": 0}, "`docsRag.is_exclusive` must be true or false"),
        ({"command": "x", "groups": "users"}, "`docsRag.groups` must be a list"),
        ({"command": "x", "groups": None}, "`docsRag.groups` must be a list"),
        ({"command": "x", "args": [1]}, "`docsRag.args[0]` must be a string"),
        ({"command": "x", "ui": {"order": "1"}}, "`docsRag.ui.order` must be a whole number"),
        ({"command": "x", "ui": []}, "`docsRag.ui` must be an object"),
        ({"type": "tcp", "enabled": False}, "`docsRag.type` must be 'stdio' or 'http'"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_with_the_reason(entry: object, said: str) -> None:
    (problem,) = problems_of(entry)
    assert said in problem
    assert "sesame" not in problem


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a:b", "1a", "x" * 65, "../up", "armarium"])
def test_a_name_that_could_be_mistaken_for_something_else_is_refused(name: str) -> None:
    assert problems_of({"command": "x"}, name)


@pytest.mark.parametrize("content", ["{}", '{"$schema": "somewhere"}', '{"mcpServers": {}}'])
def test_a_file_may_have_no_servers(content: str) -> None:
    assert parse_entries(content.encode(), source="overrides/mcp.json") == {}


@pytest.mark.parametrize("content", ["", "  \n"])
def test_a_file_with_nothing_in_it_is_refused_for_it_may_be_in_the_making(content: str) -> None:
    with pytest.raises(ServerConfigInvalid, match=r"overrides/mcp\.json is empty; write \{\}"):
        parse_entries(content.encode(), source="overrides/mcp.json")


@pytest.mark.parametrize("content", ["[]", "3", "null", '"x"', "{", "\x00", '{"a": }', "\udcff"])
def test_a_file_that_is_no_object_is_refused(content: str) -> None:
    with pytest.raises(ServerConfigInvalid, match=r"overrides/mcp\.json"):
        parse_entries(content.encode("utf-8", "surrogateescape"), source="overrides/mcp.json")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ('{"docs": {"command": "x"}, "docs": {"command": "y"}}', "docs"),
        ('{"docs": {"command": "x", "groups": ["legal"], "groups": []}}', "groups"),
        ('{"mcpServers": {"docs": {"command": "x"}, "docs": {"command": "y"}}}', "docs"),
    ],
)
def test_a_key_that_stands_twice_is_refused_instead_of_going_by_the_last(content: str, name: str) -> None:
    with pytest.raises(ServerConfigInvalid, match=rf"overrides/mcp\.json has the key `{name}` twice"):
        parse_entries(content.encode(), source="overrides/mcp.json")


@pytest.mark.parametrize("content", ['{"a":' * 1020 + "1" + "}" * 1020, '{"a": ' + "1" * 5000 + "}"])
def test_a_file_that_is_hard_to_read_is_refused_and_nothing_worse(content: str) -> None:
    with pytest.raises(ServerConfigInvalid, match=r"overrides/mcp\.json"):
        parse_entries(content.encode(), source="overrides/mcp.json")


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
entry_keys = st.sampled_from(["groups", "ui", "dataSources", "command", "url", "env", "headers", "timeouts", "type"])


@given(st.dictionaries(st.text(max_size=5), st.dictionaries(entry_keys, json_values) | json_values, max_size=3))
def test_any_file_is_either_read_or_refused(servers: dict[str, Any]) -> None:
    outcome: Any
    try:
        outcome = parse_entries(json.dumps(servers).encode(), source="overrides/mcp.json")
    except ServerConfigInvalid as error:
        outcome = error.problems
    assert outcome or not servers.keys() - {"$schema", "mcpServers"}


def test_the_published_schema_takes_what_is_taken_and_refuses_what_is_refused() -> None:
    schema = server_config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid(CONTRACT_EXAMPLE)
    assert not validator.is_valid({"docs": {"command": "x", "gruops": []}})
    assert not validator.is_valid({"docs": {"command": "x", "dataSources": [{"name": "no id"}]}})


REACHED: list[dict[str, Any]] = [
    {"command": "x", "args": ["a"], "env": {"A": "b"}, "cwd": "/"},
    {"command": "x", "url": None, "headers": {}, "type": "stdio"},
    {"url": "http://host/mcp", "headers": {"A": "b"}, "type": "http"},
    {"url": "http://host/mcp", "command": None, "args": [], "env": {}, "cwd": None, "type": None},
    {"enabled": False},
    {"enabled": False, "type": "http", "dataSources": [{"id": "a"}, {"id": "b"}]},
]
NOT_REACHED: list[dict[str, Any]] = [
    {},
    {"enabled": True},
    {"command": None, "url": None},
    {"command": ""},
    {"command": "x", "url": "http://host/mcp"},
    {"command": "x", "url": "http://host/mcp", "enabled": False},
    {"url": "http://host/mcp", "args": ["a"]},
    {"url": "http://host/mcp", "env": {"A": "b"}},
    {"url": "http://host/mcp", "cwd": "/"},
    {"url": "http://host/mcp", "type": "stdio"},
    {"command": "x", "headers": {"A": "b"}},
    {"command": "x", "type": "http"},
    {"enabled": False, "args": ["a"]},
    {"enabled": False, "headers": {"A": "b"}},
    {"command": "x", "dataSources": [{"id": "a"}, {"id": "a"}]},
]
ADDRESSES = ["http://host", "HTTPS://host:8443/mcp?a=b#c", "http://[::1]:80/mcp", "http://127.0.0.1", "http://h/a@b"]
NO_ADDRESSES = [
    "ftp://host/mcp",
    "host/mcp",
    "http://",
    "http:///mcp",
    "http://me:secret@host/mcp",
    "http://me@host/mcp",
    "http://@host/mcp",
    "http://host:port/mcp",
    "http://host/a b",
    " http://host/mcp",
    "",
]


@pytest.mark.parametrize(
    ("content", "is_taken"),
    [
        ({}, True),
        ({"$schema": "../servers.schema.json", "docs": {"command": "x"}}, True),
        ({"$schema": "../servers.schema.json", "mcpServers": {"docs": {"command": "x"}}}, True),
        ({"mcpServers": {"1docs": {"command": "x"}}}, False),
        ({"armarium": {"command": "x"}}, False),
        ({"do cs": {"command": "x"}}, False),
        ({"docs": []}, False),
        ({"docs": {"command": "x", "enabled": "yes"}}, False),
        ({"docs": {"command": "x", "groups": "users"}}, False),
        ({"docs": {"command": "x", "$schema": "servers.schema.json"}}, False),
        ({"$schema": 1, "docs": {"command": "x"}}, False),
        ({"$schema": None}, False),
        ({"mcpServers": {"docs": {"command": "x"}}, "other": {"command": "x"}}, False),
        *(({"docs": entry}, True) for entry in REACHED),
        *(({"docs": entry}, False) for entry in NOT_REACHED),
        *(({"docs": {"url": url}}, True) for url in ADDRESSES),
        *(({"docs": {"url": url}}, False) for url in NO_ADDRESSES),
    ],
)
def test_an_editor_and_the_gateway_agree_on_a_file(content: dict[str, Any], is_taken: bool) -> None:
    assert jsonschema.Draft202012Validator(server_config_schema()).is_valid(content) == is_taken
    try:
        parse_entries(json.dumps(content).encode(), source="overrides/mcp.json")
    except ServerConfigInvalid:
        assert not is_taken
    else:
        assert is_taken


def test_two_servers_are_equal_when_nothing_needs_to_change() -> None:
    entry = parse_entry("docs", {"command": "docs", "env": {"A": "b"}})
    assert entry == parse_entry("docs", {"env": {"A": "b"}, "command": "docs"})
    one = ServerSpec("docs", "rag", StdioTransport("docs", env={"A": "b"}))
    assert one == ServerSpec("docs", "rag", StdioTransport("docs", env={"A": "b"}))
    assert one != ServerSpec("docs", "rag", StdioTransport("docs", env={"A": "c"}))
