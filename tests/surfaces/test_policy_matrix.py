"""Every tool and route, for every kind of caller, over real HTTP: who is outside of a group gets nothing, and who is
inside is not refused. The tools and routes are those of the open server, so that new ones are covered."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from armarium.foundation.errors import UnknownTool
from armarium.foundation.events import PublicEvent
from armarium.foundation.routes import Route
from armarium.foundation.security.access import Access
from armarium.foundation.security.identity import Principal, key_hash
from armarium.foundation.tools import Call, ToolSpec
from armarium.surfaces.caller import Caller
from armarium.surfaces.dispatch import Dispatcher
from support import fetching_upstream
from support.mcp_messages import calling, http_client, open_session, request
from support.policy_server import (
    CANARY,
    LINK_BASE,
    RESOURCES,
    ROLES,
    SECRET_PROJECT,
    SECRET_RAG_SERVER,
    SECRET_ROOT,
    SECRET_SERVER,
    WHOLE,
    KeyHolder,
    PolicyServer,
    policy_server,
)
from support.postgres import running_postgres
from support.waiting import eventually

Json = dict[str, Any]

DENIALS = {"GROUP_REQUIRED", "NOT_PERMITTED"}
VALUES: Json = {"root": "docs", "source_root": "docs", "dest_root": "docs", "project": "notes", "path": "a.md"}
VALUES |= {"rel_path": "a.md", "source_path": "a.md", "dest_path": "b.md", "query": "harbour", "question": "harbour"}
"""Values of arguments with which a call of somebody inside finds something; others are made from the schema."""
IN_STORE = {"path": "/a.md", "from_path": "/a.md", "to_path": "/b.md"}


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with running_postgres() as address:
        yield address


@pytest.fixture
async def served(tmp_path: Path, dsn: str) -> AsyncGenerator[PolicyServer]:
    async with policy_server(tmp_path, dsn) as server:

        async def upstreams_are_there() -> bool:
            return any(name.startswith(SECRET_SERVER) for name in server.tools)

        await eventually(upstreams_are_there, what="the tools of the server behind the gateway")
        yield server


def sample(schema: Json, name: str, definitions: Json) -> Any:
    """A value that fits a schema."""
    if reference := schema.get("$ref"):
        return sample(definitions[reference.rpartition("/")[2]], name, definitions)
    if "enum" in schema:
        return schema["enum"][0]
    if choices := re.fullmatch(r"\^\((\w+)\|.*", schema.get("pattern", "")):
        return choices[1]
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) else kind:
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "array":
            return [sample(schema.get("items", {}), name, definitions)]
        case "object":
            return arguments_of(schema, definitions)
    return VALUES.get(name, "x" * max(1, schema.get("minLength", 1)))


def arguments_of(schema: Json, definitions: Json) -> Json:
    """The required members."""
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    return {name: VALUES.get(name) or sample(properties.get(name, {}), name, definitions) for name in required}


def arguments_for(capability: str, tool: ToolSpec, **given: Any) -> Json:
    arguments = arguments_of(dict(tool.input_schema), tool.input_schema.get("$defs", {}))
    if capability == "store":
        arguments |= {name: value for name, value in IN_STORE.items() if name in arguments}
    return arguments | {name: value for name, value in given.items() if name in arguments}


def code_of(result: Json) -> str | None:
    """The code of an error, in whichever format its capability has."""
    if not result.get("isError"):
        return None
    return code_in(result["structuredContent"])


def code_in(body: Json) -> str:
    found = body.get("error", body) if isinstance(body.get("error"), dict) else body
    return found.get("code") or body.get("results", {}).get("error", {}).get("code") or json.dumps(body)


class Session:
    """An MCP session of a caller on one endpoint."""

    def __init__(self, http: httpx.AsyncClient, path: str, headers: dict[str, str]) -> None:
        self._http, self._path, self._headers = http, path, headers

    async def result(self, message: Json) -> Json:
        answer = await self._http.post(self._path, json=message, headers=self._headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def call(self, name: str, arguments: Json) -> Json:
        """The result of a tool; an unknown tool is an error of the protocol."""
        answered = await self.result(calling(name) | {"params": {"name": name, "arguments": arguments}})
        unknown = {"isError": True, "structuredContent": {"code": "UNKNOWN_TOOL"}, "content": []}
        return answered.get("result", unknown)

    async def listed(self) -> set[str]:
        return {tool["name"] for tool in (await self.result(request("tools/list")))["result"]["tools"]}


@asynccontextmanager
async def session_of(served: PolicyServer, tester: KeyHolder, path: str = "/mcp") -> AsyncGenerator[Session]:
    async with http_client(served.address, tester.key) as http:
        yield Session(http, path, await open_session(http, path))


def may_use(tester: KeyHolder, capability: str, name: str, tool: ToolSpec) -> bool:
    if capability == "pipe" or tool.for_every_caller:
        return True
    in_groups = not name.startswith(f"{SECRET_SERVER}.") or tester.is_in(SECRET_SERVER)
    return in_groups and tester.may(capability, tool.role, read_only=tool.read_only)


@pytest.mark.timeout(600)
async def test_every_tool_and_route_for_every_caller(served: PolicyServer, capsys: pytest.CaptureFixture[str]) -> None:
    cells, faults = Counter[str](), list[str]()
    tools = served.tools
    over_mcp = {tool.name for each in served.server.capabilities for tool in each.tools} | {"mcp_pipe"}
    over_mcp |= {name for name in tools if name.startswith(f"{SECRET_SERVER}.")}
    assert {tool.role for _, tool in tools.values()} <= {role for roles in ROLES.values() for role in roles}

    def judge(what: str, tester: KeyHolder, code: str | None, text: str, *, permitted: bool) -> None:
        cells[what.partition(" ")[0]] += 1
        refused = code in DENIALS or code == "UNKNOWN_TOOL"
        if permitted and (refused or code == "INTERNAL"):
            faults.append(f"{what}: {tester.name} is inside and got {code}")
        if not permitted and (not refused or CANARY in text):
            faults.append(f"{what}: {tester.name} is outside and got {code or 'an answer'}")

    for tester in served.testers:
        async with http_client(served.address, tester.key) as http:
            if not tester.is_valid:
                for path in ["/mcp", "/metrics", "/api/openapi.json", *(path for path, *_ in routes_of(served))]:
                    cells["unauthenticated"] += 1
                    answer = await http.request("GET" if path == "/metrics" else "POST", path, json={})
                    if answer.status_code != 401:
                        faults.append(f"{path}: {tester.name} got {answer.status_code}")
                continue
            metrics = await http.get("/metrics")
            cells["metrics"] += 1
            if (metrics.status_code == 200) is not tester.may("operations", "metrics", read_only=True):
                faults.append(f"/metrics: {tester.name} got {metrics.status_code}")
            for path, capability, route in routes_of(served):
                answer = await request_to(http, path, capability, route)
                if route.identify is not None:
                    # Its link says who calls, not the key; see the test of links.
                    cells["link"] += 1
                    if answer.status_code != 410:
                        faults.append(f"{route.method} {path}: {tester.name} got {answer.status_code} without a link")
                    continue
                code = None if answer.is_success else code_in(answer.json())
                in_groups = not route.groups or not route.groups.isdisjoint(tester.groups)
                permitted = in_groups and may_use(tester, capability, route.tool.name, route.tool)
                judge(f"route {route.method} {path}", tester, code, answer.text, permitted=permitted)
                if not permitted and answer.status_code != 403:
                    faults.append(f"{route.method} {path}: {tester.name} got {answer.status_code}")
        async with session_of(served, tester) as session:
            expected = {name for name in over_mcp if may_use(tester, *_of(tools, name))}
            listed = await session.listed()
            cells["listing"] += len(over_mcp)
            if listed != expected:
                faults.append(f"tools/list: {tester.name} differs in {sorted(listed ^ expected)}")
            steps: list[Json] = []
            for name in sorted(over_mcp - {"mcp_pipe"}):
                capability, _, tool = _of(tools, name)
                arguments = arguments_for(capability, tool)
                steps.append({"id": name.replace(".", "-"), "tool": name, "args": arguments})
                result = await session.call(name, arguments)
                permitted = may_use(tester, capability, name, tool)
                judge(f"mcp {name}", tester, code_of(result), json.dumps(result), permitted=permitted)
            piped = await session.call("mcp_pipe", {"steps": steps, "continue_on_error": True})
            for step, name in zip(steps, sorted(over_mcp - {"mcp_pipe"}), strict=True):
                done = piped["structuredContent"]["steps"][step["id"]]
                code = None if done["ok"] else done["error"]["code"]
                permitted = may_use(tester, *_of(tools, name))
                judge(f"pipe {name}", tester, code, json.dumps(done), permitted=permitted)
        for capability in WHOLE:
            async with session_of(served, tester, f"/mcp/{capability}") as session:
                own = {name for name in over_mcp if tools[name][0] == capability}
                cells["listing"] += len(own)
                if await session.listed() != {name for name in own if may_use(tester, *_of(tools, name))}:
                    faults.append(f"/mcp/{capability}: the list of {tester.name} is wrong")

    with capsys.disabled():
        print(f"\npolicy matrix: {cells.total()} cells {dict(cells)}, {len(faults)} faults")
    assert not faults, "\n".join(faults[:40])
    assert cells.total() > 5000


def _of(tools: dict[str, tuple[str, ToolSpec]], name: str) -> tuple[str, str, ToolSpec]:
    capability, tool = tools[name]
    return capability, name, tool


def routes_of(served: PolicyServer) -> list[tuple[str, str, Route]]:
    assert served.server.operations is not None
    offered = [(each.name, each.routes) for each in served.server.capabilities] + [*served.server.operations.routes]
    return [(f"/api{route.path_of(name)}", name, route) for name, routes in offered for route in routes]


async def request_to(http: httpx.AsyncClient, path: str, capability: str, route: Route) -> httpx.Response:
    """A request with the required arguments of the tool."""
    arguments = arguments_for(capability, route.tool)
    query = {name: value for name, value in arguments.items() if route.place_of(name) == "query"}
    body: Any = {name: value for name, value in arguments.items() if route.place_of(name) == "body"}
    if route.whole_body is not None:
        body = body.get(route.whole_body, {})
    in_path = {name: value for name, value in arguments.items() if route.place_of(name) == "path"}
    content = json.dumps(body) if route.takes_body else None
    return await http.request(route.method, path.format(**in_path), params=query, content=content)


async def test_every_resource_for_callers_inside_and_outside_its_group(
    served: PolicyServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Roots and projects, for each tool that takes one. A root cannot be told from one that does not exist."""
    cells, faults = 0, list[str]()
    named = {"inside", f"no-{SECRET_ROOT}", f"no-{SECRET_PROJECT}"}
    over_mcp = {tool.name for each in served.server.capabilities for tool in each.tools}
    for tester in (tester for tester in served.testers if tester.name in named):
        async with session_of(served, tester) as session:
            for capability, tool in served.server.dispatcher.tools:
                names = [name for name in tool.input_schema.get("properties", {}) if is_resource(name, capability)]
                for name in names:
                    secret = SECRET_PROJECT if capability == "store" else SECRET_ROOT
                    answered: list[Json] = []
                    for value in (secret, "absent"):
                        cells += 1
                        arguments = arguments_for(capability, tool) | {name: value}
                        if tool.name in over_mcp:
                            answered.append(await session.call(tool.name, arguments))
                        else:
                            caller = Caller(principal_of(tester), "api")
                            outcome = await served.server.dispatcher.outcome(caller, tool.name, arguments)
                            answered.append(outcome.result)
                    code, text = code_of(answered[0]), json.dumps(answered[0])
                    what = f"{tool.name} {name}={secret}: {tester.name} got {code}"
                    if tester.is_in(secret):
                        if code in {*DENIALS, "UNKNOWN_ROOT"}:
                            faults.append(what)
                    elif capability == "store":
                        if code != "GROUP_REQUIRED":
                            faults.append(what)
                    elif text.replace(secret, "absent") != json.dumps(answered[1]):
                        faults.append(f"{what}, unlike for a root that does not exist")
    with capsys.disabled():
        print(f"\nresources: {cells} cells, {len(faults)} faults")
    assert not faults, "\n".join(faults)
    assert cells > 100


def principal_of(tester: KeyHolder) -> Principal:
    groups, key = tuple(tester.groups), key_hash(tester.key or "")
    return Principal(tester.name, groups, key, tester.capabilities, tester.read_only)


async def test_bytes_of_files_and_what_is_known_of_them_for_every_caller(
    served: PolicyServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """By references, whose routes name the capability only in an argument."""
    cells, faults = Counter[str](), list[str]()
    refs = {
        "root://docs/a.md": ("sandbox", None),
        f"root://{SECRET_ROOT}/a.md": ("sandbox", SECRET_ROOT),
        "store://notes/a.md": ("store", None),
        f"store://{SECRET_PROJECT}/a.md": ("store", SECRET_PROJECT),
        "corpus://corpus/a.md": ("corpus", None),
    }
    for tester in served.testers:
        async with http_client(served.address, tester.key) as http:
            for ref, (capability, resource) in refs.items():
                inside = resource is None or tester.is_in(resource)
                may_read = inside and tester.may(capability, "read", read_only=True)
                may_write = inside and tester.may(capability, "write", read_only=False)
                tried = [("/api/files", "GET", may_read)]
                if capability != "corpus":
                    tried.append(("/api/raw", "GET", may_read))
                if capability == "sandbox":
                    tried.append(("/api/raw", "PUT", may_write))
                for path, method, permitted in tried:
                    cells[f"{method} {path}"] += 1
                    name = ref if method == "GET" else f"{ref}.{tester.name}"
                    content = b"new" if method == "PUT" else None
                    answer = await http.request(method, path, params={"ref": name}, content=content)
                    what = f"{method} {path} {ref}: {tester.name}"
                    code = None if answer.is_success else code_in(answer.json())
                    if not tester.is_valid:
                        faults += [] if answer.status_code == 401 else [f"{what} got {answer.status_code}"]
                    elif permitted:
                        if code not in (None, "NOT_FOUND"):
                            faults.append(f"{what} is inside and got {code}")
                    elif code not in {*DENIALS, "UNKNOWN_ROOT"} or CANARY in answer.text:
                        faults.append(f"{what} is outside and got {code or 'an answer'}")
                    if path == "/api/files" and answer.is_success:
                        told = answer.json()["known"]
                        faults += [f"{what} learned of {each}" for each in told if not _may_read(tester, each)]
            if tester.name == "inside":
                assert (await http.get("/api/raw", params={"ref": "root://docs/a.md"})).text.count(CANARY) == 1
    with capsys.disabled():
        print(f"\nbytes and facts: {cells.total()} cells, {len(faults)} faults")
    assert not faults, "\n".join(faults[:40])
    assert cells.total() > 300


def _may_read(tester: KeyHolder, capability: str) -> bool:
    return tester.may(capability, "read", read_only=True)


def is_resource(argument: str, capability: str) -> bool:
    return (capability == "sandbox" and argument.endswith("root")) or (capability == "store" and argument == "project")


async def sources_of(session: Session) -> set[str]:
    found = await session.call("rag_discover_resources", {})
    return {each["id"] for each in found["structuredContent"]["results"]["resources"]}


async def test_lists_of_resources_are_those_that_the_caller_may_use(served: PolicyServer) -> None:
    by_name = {tester.name: tester for tester in served.testers}
    async with session_of(served, by_name["inside"]) as session:
        roots = await session.call("list_roots", {})
        assert [each["name"] for each in roots["structuredContent"]["roots"]] == ["docs", SECRET_ROOT]
        assert {each.partition(":")[0] for each in await sources_of(session)} == {"armarium", SECRET_RAG_SERVER}
    async with session_of(served, by_name[f"no-{SECRET_ROOT}"]) as session:
        roots = await session.call("list_roots", {})
        assert [each["name"] for each in roots["structuredContent"]["roots"]] == ["docs"]
        assert SECRET_ROOT not in json.dumps(roots)
    async with session_of(served, by_name[f"no-{SECRET_SERVER}"]) as session:
        assert {each.partition(":")[0] for each in await sources_of(session)} == {"armarium"}
    for outsider in ("only-gateway", "not-corpus", "no-read-corpus", "groups-of-gateway"):
        async with session_of(served, by_name[outsider]) as session:
            assert "armarium:corpus" not in await sources_of(session)
            arguments = {"query": "harbour", "sources": ["armarium:corpus"]}
            for tool in ("rag_get_raw_results", "rag_get_synthesized_results"):
                direct = await session.call(tool, arguments)
                steps = [{"id": "a", "tool": tool, "args": arguments}]
                piped = await session.call("mcp_pipe", {"steps": steps})
                for result in (direct, piped):
                    assert result["isError"]
                    assert CANARY not in json.dumps(result)


async def test_what_a_caller_wrote_is_hidden_when_they_leave_the_group(served: PolicyServer, tmp_path: Path) -> None:
    """Also in a search over all projects, and through the sources of the gateway."""
    inside = served.testers[0]
    project = {"project": SECRET_PROJECT}

    async def projects_found(session: Session) -> set[str]:
        found = await session.call("file_search", {"project": "*", "query": "harbour"})
        assert code_of(found) is None
        return {each["project"] for each in found["structuredContent"]["chunks"]}

    async with session_of(served, inside) as session:
        for name in ("notes", SECRET_PROJECT):
            written = {"project": name, "path": "/a.md", "content": f"{CANARY} harbour", "mode": "TRUNCATE"}
            assert code_of(await session.call("file_write", written)) is None

        async def indexed() -> bool:
            return await projects_found(session) == {"notes", SECRET_PROJECT}

        await eventually(indexed, what="both projects are indexed")
        assert f"armarium:store:{SECRET_PROJECT}" in await sources_of(session)
    keys = tmp_path / "state" / "keys.json"
    stored = json.loads(keys.read_text())
    for key in stored["keys"]:
        key["groups"] = [group for group in key["groups"] if group != RESOURCES[SECRET_PROJECT]]
    keys.write_text(json.dumps(stored))
    async with session_of(served, inside) as session:
        assert await projects_found(session) == {"notes"}
        sources = await sources_of(session)
        assert "armarium:store:notes" in sources
        assert f"armarium:store:{SECRET_PROJECT}" not in sources
        for tool in ("file_read", "file_list", "file_history", "file_stat", "file_search", "file_delete"):
            spec = next(spec for _, spec in served.server.dispatcher.tools if spec.name == tool)
            assert code_of(await session.call(tool, arguments_for("store", spec) | project)) == "GROUP_REQUIRED"
        direct = {"query": "harbour", "sources": [f"armarium:store:{SECRET_PROJECT}"]}
        assert CANARY not in json.dumps(await session.call("rag_get_raw_results", direct))


async def test_a_link_to_a_file_is_for_callers_who_may_read_it(served: PolicyServer, tmp_path: Path) -> None:
    """Also while it exists: it ends when its caller leaves a group. A server behind the gateway is given the links."""
    inside = served.testers[0]
    config = tmp_path / "config" / "overrides" / "mcp.json"
    program = [sys.executable, "-I", fetching_upstream.__file__]
    servers = json.loads(config.read_text()) | {"fetcher": {"command": program[0], "args": program[1:]}}
    config.write_text(json.dumps(servers))
    async with http_client(served.address, inside.key) as http:
        assert (await http.post("/api/admin/mcp/reload")).status_code == 200

    async def is_there() -> bool:
        return "fetcher.fetch" in served.tools

    await eventually(is_there, what="the tool that takes files")
    (tmp_path / "docs" / ".env").write_text(f"TOKEN={CANARY}")
    written = {"project": SECRET_PROJECT, "path": "/a.md", "content": CANARY, "mode": "TRUNCATE"}
    readable: dict[str, Callable[[KeyHolder], bool]] = {
        "root://docs/a.md": lambda each: each.may("sandbox", "read", read_only=True),
        f"root://{SECRET_ROOT}/a.md": lambda each: (
            each.may("sandbox", "read", read_only=True) and each.is_in(SECRET_ROOT)
        ),
        # Everybody has files of their own there, so only who may also write has one.
        f"store://{SECRET_PROJECT}/a.md": lambda each: (
            all(each.may("store", role, read_only=False) for role in ROLES["store"]) and each.is_in(SECRET_PROJECT)
        ),
    }
    links: dict[str, str] = {}
    outside, callers = Counter[str](), 0
    async with httpx.AsyncClient(base_url=served.address) as anybody:
        for tester in served.testers:
            if not may_use(tester, *_of(served.tools, "fetcher.fetch")):
                continue
            callers += 1
            async with session_of(served, tester) as session:
                await session.call("file_write", written)
                for name, may_read in readable.items():
                    found = await session.call("fetcher.fetch", {"filename": name})
                    if not may_read(tester):
                        outside[name] += 1
                        assert found["isError"], f"{tester.name} got a link to {name}"
                        assert LINK_BASE not in json.dumps(found)
                        continue
                    assert code_of(found) is None, f"{name} for {tester.name}: {found}"
                    link: str = found["structuredContent"]["given"]["filename"]
                    fetched = await anybody.get(link.removeprefix(LINK_BASE))
                    assert (fetched.status_code, CANARY in fetched.text) == (200, True), f"{name} for {tester.name}"
                    links[f"{tester.name} {name}"] = link.removeprefix(LINK_BASE)
                plain = f"{SECRET_ROOT}/a.md"
                given = (await session.call("fetcher.fetch", {"filename": plain}))["structuredContent"]["given"]
                assert (given["filename"] == plain) is not readable[f"root://{plain}"](tester)
                hidden = await session.call("fetcher.fetch", {"filename": "root://docs/.env"})
                assert hidden["isError"]
                assert CANARY not in json.dumps(hidden)
        assert callers > 5
        assert outside.keys() == readable.keys()

        keys = tmp_path / "state" / "keys.json"
        stored = json.loads(keys.read_text())
        for key in stored["keys"]:
            if key["name"] == inside.name:
                key["groups"] = []
        keys.write_text(json.dumps(stored))
        for name in readable:
            assert (await anybody.get(links[f"{inside.name} {name}"])).status_code == 410
        other = next(each for each in links if not each.startswith(f"{inside.name} "))
        assert (await anybody.get(links[other])).status_code == 200


@pytest.mark.parametrize("disabled", ["dispatcher", "capability"])
async def test_a_check_that_is_missing_in_one_place_reveals_nothing(
    served: PolicyServer, monkeypatch: pytest.MonkeyPatch, disabled: str
) -> None:
    """Each layer refuses alone: the dispatcher, and the capability with its data."""
    dispatcher = served.server.dispatcher
    if disabled == "dispatcher":
        monkeypatch.setattr(Dispatcher, "_access_of", lambda self, capability: _Open(capability))
    else:
        specs = {name: replace(tool, run=_answers) for name, (_, tool) in served.tools.items()}
        for name, prepared in dispatcher._tools.items():
            prepared.tool = specs[name]
    answered: list[str] = []
    for tester in served.testers:
        if not tester.is_valid:
            continue
        principal = principal_of(tester)
        for name, (capability, tool) in served.tools.items():
            if may_use(tester, capability, name, tool):
                continue
            arguments = arguments_for(capability, tool)
            with suppress(UnknownTool):
                caller = Caller(principal, "http", "session")
                outcome = await dispatcher.outcome(caller, name, arguments, tool_providers=dispatcher.tool_providers)
                if outcome.error is None or outcome.error.code not in DENIALS:
                    answered.append(f"{name} for {tester.name}: {outcome.error and outcome.error.code}")
    assert not answered, "\n".join(answered[:20])


class _Open(Access):
    """Permits everything."""

    def permits(self, principal: Principal, tool: ToolSpec) -> bool:
        return True


async def _answers(call: Call, arguments: Mapping[str, Any]) -> Json:
    return {}


async def test_calls_of_others_are_shown_to_auditors_alone(
    served: PolicyServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """`GET /api/audit` and the event `call` are for every caller, and show what is theirs."""
    valid = [tester for tester in served.testers if tester.is_valid]
    auditors = {each.name for each in valid if each.may("operations", "audit", read_only=True)}
    told: dict[str, set[str]] = {tester.name: set() for tester in valid}
    last = valid[-1].name

    async def listen(tester: KeyHolder, started: anyio.Event) -> None:
        async with http_client(served.address, tester.key) as http, http.stream("GET", "/api/events") as answer:
            async for line in answer.aiter_lines():
                started.set()
                if line.startswith("event: end"):
                    return
                if line.startswith("data:") and "call_id" in line:
                    told[tester.name].add(json.loads(line.removeprefix("data:"))["principal"])

    async with anyio.create_task_group() as tasks:
        for tester in valid:
            started = anyio.Event()
            tasks.start_soon(listen, tester, started)
            await started.wait()
        for tester in valid:
            async with http_client(served.address, tester.key) as http:
                assert (await http.get("/api/status")).status_code == 200
        await served.server.events.publish(PublicEvent("end", {}))
    everybody = {tester.name for tester in valid}
    assert told == {name: everybody if name in auditors else {name} for name in everybody}

    cells = 0
    for tester in valid:
        async with http_client(served.address, tester.key) as http:

            async def listed(http: httpx.AsyncClient = http, tester: KeyHolder = tester) -> set[str]:
                page = (await http.get("/api/audit", params={"limit": 1000})).json()
                callers = {each["principal"] for each in page["calls"]}
                return callers if {tester.name, last} & callers else set()

            shown = await eventually(listed, what="the calls are in the audit log")
            facets = (await http.get("/api/audit/facets")).json()["facets"]["principal"]
            cells += 2
            for callers in (shown, set(facets)):
                assert callers <= everybody if tester.name in auditors else callers == {tester.name}, tester.name
    with capsys.disabled():
        print(f"\ncalls of others: {cells} cells, {len(auditors)} auditors")
    assert 0 < len(auditors) < len(valid)


async def test_events_reach_only_callers_who_may_read_what_they_are_about(served: PolicyServer) -> None:
    by_name = {tester.name: tester for tester in served.testers}
    received: dict[str, list[str]] = {}
    events = served.server.events

    async def listen(name: str, started: anyio.Event) -> None:
        async with (
            http_client(served.address, by_name[name].key) as http,
            http.stream("GET", "/api/events") as answer,
        ):
            async for line in answer.aiter_lines():
                started.set()
                if line.startswith("event: end"):
                    return
                # The capabilities publish events of their own, too.
                if line.startswith("event: about_"):
                    received.setdefault(name, []).append(line.removeprefix("event: about_"))

    names = ["inside", "outside", "only-corpus", "not-corpus", "no-read-registry", "no-judge-registry"]
    async with anyio.create_task_group() as tasks:
        for name in names:
            started = anyio.Event()
            tasks.start_soon(listen, name, started)
            await started.wait()
        for capability in WHOLE:
            await events.publish(PublicEvent(f"about_{capability}", {"path": CANARY}, capability=capability))
        await events.publish(PublicEvent("end", {}))

    assert received == {
        name: about
        for name in names
        if (about := [capability for capability in WHOLE if by_name[name].may(capability, "read", read_only=True)])
    }
    assert "outside" not in received
