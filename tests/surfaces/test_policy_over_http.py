"""Random calls to every capability, over MCP, the JSON API and in the process, against a model of the policy that
shares no code with it. `test_policy_model` does the same for the rules of roots and the registry."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from armarium.foundation.routes import Route
from armarium.foundation.security.authentication import open_authenticator
from armarium.foundation.security.identity import Principal
from armarium.foundation.security.keys import KeyFile
from armarium.foundation.settings.loader import checked
from armarium.server import Server, open_server
from armarium.settings import Settings
from armarium.surfaces.caller import Caller
from support.mcp_messages import calling, http_client, open_session, serving
from support.postgres import running_postgres
from support.soak import chance

Json = dict[str, Any]

GROUPS = ("red", "green", "blue", "white")
ROLES = {
    "sandbox": ("read", "write"),
    "store": ("read", "write"),
    "corpus": ("read", "write", "administer"),
    "registry": ("read", "report", "judge", "administer"),
    "gateway": ("read", "write"),
}
REFUSED = {"GROUP_REQUIRED", "NOT_PERMITTED", "UNKNOWN_ROOT", "UNKNOWN_TOOL"}
PROJECTS = ("open", "closed")
"""Projects of the store. The rules name groups for the second one."""


@dataclass(frozen=True)
class Tool:
    """A tool with what its documentation says of it, and arguments."""

    capability: str
    role: str
    arguments: Json
    changes: bool = False
    only_routes: bool = False


_FILE = {"project": "open", "path": "/a.md"}
_ROOT = {"root": "work", "path": "a.md"}
TOOLS = {
    "read_file": Tool("sandbox", "read", _ROOT),
    "stat_file": Tool("sandbox", "read", _ROOT),
    "write_file": Tool("sandbox", "write", {**_ROOT, "content": "x"}, changes=True),
    "file_stat": Tool("store", "read", _FILE),
    "file_read": Tool("store", "read", _FILE),
    "file_list": Tool("store", "read", {"project": "open", "path": "/"}),
    "file_history": Tool("store", "read", _FILE),
    "file_search": Tool("store", "read", {"project": "open", "query": "harbour"}),
    "file_write": Tool("store", "write", {**_FILE, "content": "tea", "mode": "TRUNCATE"}, changes=True),
    "file_delete": Tool("store", "write", _FILE, changes=True),
    "file_rename": Tool("store", "write", {"project": "open", "from_path": "/a.md", "to_path": "/b.md"}, changes=True),
    "dir2mcp.search": Tool("corpus", "read", {"query": "harbour"}),
    "dir2mcp.list_files": Tool("corpus", "read", {}),
    "dir2mcp.stats": Tool("corpus", "read", {}),
    "dir2mcp.open_file": Tool("corpus", "read", {"rel_path": "a.md"}),
    "list_findings": Tool("registry", "read", {}),
    "register_file": Tool("registry", "report", {"path": "a.md"}, changes=True),
    "create_issue": Tool("registry", "judge", {"title": "t"}, changes=True),
    "rag_discover_resources": Tool("gateway", "read", {}),
    "rag_get_raw_results": Tool("gateway", "read", {"query": "harbour", "sources": ["armarium:corpus"]}),
    "list_keys": Tool("operations", "administer", {}, only_routes=True),
    "show_settings": Tool("operations", "administer", {}, only_routes=True),
    "revoke_key": Tool("operations", "administer", {"name": "nobody"}, changes=True, only_routes=True),
    "metric_series": Tool("operations", "metrics", {}, only_routes=True),
}


def some_groups(rng: random.Random) -> list[str]:
    return rng.sample(GROUPS, rng.randint(1, 2))


def some_rules(rng: random.Random, roles: tuple[str, ...]) -> Json:
    rules: Json = {"groups": some_groups(rng)} if rng.random() < 0.3 else {}
    return rules | {"access": {role: some_groups(rng) for role in roles if rng.random() < 0.4}}


def some_policy(rng: random.Random, base: Path, dsn: str) -> Json:
    places: Json = {
        "sandbox": {"roots": [{"name": "work", "path": str(base / "work"), "allowed_tools": ["*"]}]},
        "store": {
            "dsn": dsn,
            "rate": {"calls_per_second": 1e6, "burst": 10**6},
            "projects": [{"name": "closed", "groups": some_groups(rng)}],
        },
        "corpus": {"root": str(base / "corpus"), "ingest": {"watch": False}},
        "registry": {"project": str(base / "project")},
        "gateway": {"config_dir": str(base / "config"), "watch": False, "limits": {"rate_per_minute": None}},
    }
    return {
        "state_dir": str(base / "state"),
        "audit": {"enabled": False},
        "network": "off",
        "limits": {"requests_per_second": None, "calls_in_flight": 10_000},
        "security": {"auth": "keys", "metrics_groups": some_groups(rng), "admin_groups": some_groups(rng)},
        **{name: section | some_rules(rng, ROLES[name]) for name, section in places.items()},
    }


def admits(caller: Principal, *required: list[str] | None) -> bool:
    return all(groups is None or set(groups) & set(caller.groups) for groups in required)


def permits(policy: Json, caller: Principal, tool: Tool, arguments: Json) -> bool:
    """The policy as its documentation tells it."""
    if caller.capabilities is not None and tool.capability not in caller.capabilities:
        return False
    if caller.read_only and tool.changes:
        return False
    if tool.capability == "operations":
        return admits(caller, policy["security"]["admin_groups" if tool.role == "administer" else "metrics_groups"])
    section = policy[tool.capability]
    of_project = section["projects"][0]["groups"] if arguments.get("project") == "closed" else None
    return admits(caller, section.get("groups"), section["access"].get(tool.role), of_project)


def some_callers(rng: random.Random, keys: KeyFile) -> Iterator[tuple[Principal, str]]:
    for number in range(12):
        capabilities = rng.choice([None, None, tuple(rng.sample([*ROLES], rng.randint(1, 3)))])
        groups, access = tuple(rng.sample(GROUPS, rng.randint(0, 4))), rng.choice(["write", "write", "read"])
        stored, secret = keys.add(f"c{number}", groups=groups, capabilities=capabilities, access=access)
        yield stored.principal, secret


def code_in(body: Json) -> str | None:
    """The code of an error, in whichever format its capability has."""
    found = body.get("error", body) if isinstance(body.get("error"), dict) else body
    code = found.get("code") or body.get("results", {}).get("error", {}).get("code")
    assert code, body
    return code


async def over_mcp(http: httpx.AsyncClient, session: dict[str, str], name: str, arguments: Json) -> str | None:
    message = calling(name) | {"params": {"name": name, "arguments": arguments}}
    answer = (await http.post("/mcp", json=message, headers=session)).json()
    if "error" in answer:
        return "UNKNOWN_TOOL"
    result = answer["result"]
    return code_in(result["structuredContent"]) if result.get("isError") else None


async def over_route(http: httpx.AsyncClient, capability: str, route: Route, arguments: Json) -> str | None:
    parts: dict[str, Json] = {"path": {}, "query": {}, "body": {}}
    for name, value in arguments.items():
        parts[route.place_of(name)][name] = value
    path = f"/api{route.path_of(capability)}".format(**parts["path"])
    content = json.dumps(parts["body"]) if route.takes_body else None
    answer = await http.request(route.method, path, params=parts["query"], content=content)
    return None if answer.is_success else code_in(answer.json())


def routes_of(server: Server) -> dict[str, tuple[str, Route]]:
    assert server.operations is not None
    offered = [(each.name, each.routes) for each in server.capabilities] + [*server.operations.routes]
    return {route.tool.name: (name, route) for name, routes in offered for route in routes}


async def compare(rng: random.Random, base: Path, dsn: str, calls: int, counted: Counter[str]) -> None:
    """Serve a random policy, and make random calls."""
    for name in ("work", "corpus", "project"):
        (base / name).mkdir(parents=True)
        (base / name / "a.md").write_text("# Harbour\n")
    policy = some_policy(rng, base, dsn)
    settings = checked(Settings, policy, source="the test")
    callers = [*some_callers(rng, KeyFile(settings.keys_file()))]
    async with (
        open_server(settings) as server,
        serving(server.http(open_authenticator(settings))) as address,
        AsyncExitStack() as stack,
    ):
        routes = routes_of(server)
        clients = [await stack.enter_async_context(http_client(address, key)) for _, key in callers]
        sessions = [await open_session(http, "/mcp") for http in clients]
        for _ in range(calls):
            number, (name, tool) = rng.randrange(len(callers)), rng.choice([*TOOLS.items()])
            caller, http = callers[number][0], clients[number]
            arguments = tool.arguments | ({"project": rng.choice(PROJECTS)} if "project" in tool.arguments else {})
            ways = ["process", *(["mcp"] if not tool.only_routes else []), *(["route"] if name in routes else [])]
            match way := rng.choice(ways):
                case "mcp":
                    code = await over_mcp(http, sessions[number], name, arguments)
                case "route":
                    code = await over_route(http, *routes[name], arguments)
                case _:
                    outcome = await server.dispatcher.outcome(Caller(caller, "http", "session"), name, arguments)
                    code = outcome.error and outcome.error.code
            permitted = permits(policy, caller, tool, arguments)
            counted["permitted" if permitted else "refused"] += 1
            counted[way] += 1
            what = f"{caller} calls {name} with {arguments} ({way}) and gets {code}; rules: {policy}"
            assert code != "INTERNAL", what
            assert (code not in REFUSED) is permitted, what


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with running_postgres() as address:
        yield address


async def test_random_calls_agree_with_the_model(tmp_path: Path, dsn: str) -> None:
    rng, counted = chance(83), Counter[str]()
    for number in range(2):
        await compare(rng, tmp_path / str(number), dsn, 250, counted)
    assert min(counted["permitted"], counted["refused"]) > 50
    assert min(counted["mcp"], counted["route"]) > 50


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_a_hundred_thousand_random_calls_agree_with_the_model(tmp_path: Path, dsn: str) -> None:
    rng, counted = chance("policy over http"), Counter[str]()
    for number in range(20):
        await compare(rng, tmp_path / str(number), dsn, 5000, counted)
        print(f"{counted['permitted'] + counted['refused']} calls, {dict(counted)}", flush=True)
    assert counted["permitted"] + counted["refused"] == 100_000
