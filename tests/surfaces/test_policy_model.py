"""Random calls of callers in random groups, against a model of the policy that shares no code with it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from armarium.foundation.security.identity import ANYONE, LOCAL, Principal, key_hash
from armarium.foundation.settings.loader import checked
from armarium.server import open_server
from armarium.settings import Settings
from armarium.surfaces.caller import Caller
from support.soak import chance

Json = dict[str, Any]

GROUPS = ("red", "green", "blue", "white")
ROOTS = ("a", "b")
SANDBOX_READS = ("list_folder", "read_file", "stat_file", "hash_file", "permissions_file", "grep", "glob")
SANDBOX_WRITES = ("write_file", "remove_file", "patch_file", "create_folder", "remove_folder")
REGISTRY_ROLES = {
    "list_files": "read", "get_file": "read", "get_file_timeline": "read", "get_issue_files": "read",
    "list_findings": "read", "get_issue": "read", "list_issues": "read", "add_file_association": "report",
    "register_file": "report", "report_findings": "report", "import_scan_results": "report", "update_finding": "judge",
    "promote_finding": "judge", "create_issue": "judge", "update_issue": "judge",
}  # fmt: skip
REFUSED = {"GROUP_REQUIRED", "NOT_PERMITTED", "UNKNOWN_ROOT"}


def some_groups(rng: random.Random) -> list[str]:
    return rng.sample(GROUPS, rng.randint(1, 2))


def some_rules(rng: random.Random, uses: tuple[str, ...]) -> Json:
    """A section's `groups` and `access`, each there or not."""
    rules: Json = {"groups": some_groups(rng)} if rng.random() < 0.3 else {}
    return rules | {"access": {use: some_groups(rng) for use in uses if rng.random() < 0.2}}


def some_policy(rng: random.Random, base: Path) -> Json:
    uses = ("read", "write", *SANDBOX_READS, *SANDBOX_WRITES, "copy", "move")
    roots = [
        {"name": name, "path": str(base / name), "allowed_tools": ["*"], **some_rules(rng, uses)} for name in ROOTS
    ]
    return {
        "state_dir": str(base / "state"),
        "audit": {"enabled": False},
        "pipe": {"enabled": True},
        "sandbox": {"roots": roots, "landlock": "off", **some_rules(rng, ("read", "write"))},
        "registry": {"project": str(base / "project"), **some_rules(rng, ("read", "report", "judge", "administer"))},
    }


def some_caller(rng: random.Random, number: int) -> Principal:
    capabilities = rng.choice(
        [None, None, frozenset(["sandbox"]), frozenset(["registry", "sandbox"]), frozenset[str]()]
    )
    groups = tuple(rng.sample(GROUPS, rng.randint(0, len(GROUPS))))
    return Principal(f"c{number}", groups, key_hash(str(number)), capabilities, read_only=rng.random() < 0.2)


def some_call(rng: random.Random) -> tuple[str, Json]:
    """A tool and its arguments."""
    root = rng.choice(ROOTS)
    place: Json = {"root": root, "path": rng.choice(["f.txt", "d", ".", "new"])}
    more: Json = {
        "write_file": {"content": "x"}, "patch_file": {"patch": "--- f.txt\n+++ f.txt\n@@ -1 +1 @@\n-x\n+y\n"},
        "grep": {"pattern": "x"}, "glob": {"pattern": "*"}, "hash_file": {"algorithm": "md5"},
    }  # fmt: skip
    kind = rng.random()
    if kind < 0.45:
        tool = rng.choice([*SANDBOX_READS, *SANDBOX_WRITES])
        return tool, place | more.get(tool, {})
    if kind < 0.6:
        destination = {"dest_root": rng.choice(ROOTS), "dest_path": "f.txt"}
        return rng.choice(["copy", "move"]), {"source_root": root, "source_path": "f.txt", **destination}
    if kind < 0.65:
        return "list_roots", {}
    tool = rng.choice([*REGISTRY_ROLES])
    arguments: Json = {
        "register_file": {"path": "f.txt"}, "report_findings": {"scan_source": "s", "findings": []},
        "import_scan_results": {"report": {}}, "create_issue": {"title": "t"},
        "add_file_association": {"file_id": "f", "issue_id": "i", "assoc_type": "bug_in"},
        "update_finding": {"finding_id": "f", "status": "open"}, "promote_finding": {"finding_id": "f"},
        "list_files": {}, "list_findings": {}, "list_issues": {},
        "get_issue": {"issue_id": "i"}, "get_issue_files": {"issue_id": "i"}, "update_issue": {"issue_id": "i"},
    }  # fmt: skip
    return tool, arguments.get(tool, {"file_id": "f"})


class Model:
    """The policy as its documentation tells it."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._roots = {root["name"]: root for root in settings["sandbox"]["roots"]}

    def permits(self, caller: Principal, tool: str, arguments: Json) -> bool:
        capability = "registry" if tool in REGISTRY_ROLES else "sandbox"
        changes = tool in (*SANDBOX_WRITES, "copy", "move") or REGISTRY_ROLES.get(tool, "read") != "read"
        if caller.capabilities is not None and capability not in caller.capabilities:
            return False
        if caller.read_only and changes:
            return False
        role = REGISTRY_ROLES.get(tool) or ("write" if changes else "read")
        visible = self.visible_roots(caller)
        return self._admits(self._settings[capability], caller, role) and all(
            root in visible and self._admits(self._roots[root], caller, *uses)
            for root, uses in self._root_uses(tool, role, arguments)
        )

    def visible_roots(self, caller: Principal) -> dict[str, set[str]]:
        """The roots that `list_roots` tells the caller, with the tools."""
        kinds = [("read", SANDBOX_READS), ("write", SANDBOX_WRITES), ("read", ("copy",)), ("write", ("move",))]
        tools = {
            name: {tool for role, each in kinds for tool in each if self._admits(root, caller, role, tool)}
            for name, root in self._roots.items()
        }
        return {name: usable for name, usable in tools.items() if usable}

    def _root_uses(self, tool: str, role: str, arguments: Json) -> Iterator[tuple[str, tuple[str, ...]]]:
        if "root" in arguments:
            yield arguments["root"], (role, tool)
        if tool in ("copy", "move"):
            yield arguments["source_root"], (("read", tool) if tool == "copy" else ("read", "write", tool))
            yield arguments["dest_root"], ("write", tool)

    def _admits(self, rules: Json, caller: Principal, *uses: str) -> bool:
        named = [rules.get("groups"), *(rules["access"].get(use) for use in uses)]
        return caller.username == "local" or all(groups is None or set(groups) & set(caller.groups) for groups in named)


async def compare(rng: random.Random, base: Path, calls: int, counted: Counter[str]) -> None:
    """Open a server with random rules, and make random calls."""
    for name in (*ROOTS, "project"):
        (base / name / "d").mkdir(parents=True)
        (base / name / "f.txt").write_text("x\n")
    given = some_policy(rng, base)
    model = Model(given)
    callers = [*(some_caller(rng, number) for number in range(12)), LOCAL, ANYONE]
    async with open_server(checked(Settings, given, source="the test")) as server:
        for _ in range(calls):
            principal = rng.choice(callers)
            tool, arguments = some_call(rng)
            caller = Caller(principal, "http", "session")
            if rng.random() < 0.2 and tool != "import_scan_results":
                steps = {"steps": [{"id": "a", "tool": tool, "args": arguments}]}
                answer = (await server.dispatcher.outcome(caller, "mcp_pipe", steps)).result["structuredContent"]
                code, answer = (answer["error"] or {}).get("code"), answer["steps"]["a"]["structured"]
            else:
                outcome = await server.dispatcher.outcome(caller, tool, arguments)
                code, answer = outcome.error and outcome.error.code, outcome.result["structuredContent"]
            permitted = model.permits(principal, tool, arguments)
            counted["permitted" if permitted else "refused"] += 1
            what = f"{principal} calls {tool} with {arguments} and gets {code}; rules: {given}"
            assert code != "INTERNAL", what
            assert (code not in REFUSED) is permitted, what
            if tool == "list_roots" and permitted:
                told = {root["name"]: set(root["allowed_tools"]) for root in answer["roots"]}
                assert told == model.visible_roots(principal), what
            listed = {
                each.name for _, each in server.dispatcher.tools if server.dispatcher.permits(principal, each.name)
            }
            assert code != "NOT_PERMITTED" or tool not in listed, what


async def test_random_calls_agree_with_the_model(tmp_path: Path) -> None:
    rng, counted = chance(15), Counter[str]()
    for number in range(4):
        await compare(rng, tmp_path / str(number), 250, counted)
    assert min(counted["permitted"], counted["refused"]) > 100


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_a_hundred_thousand_random_calls_agree_with_the_model(tmp_path: Path) -> None:
    rng, counted = chance("policy"), Counter[str]()
    for number in range(200):
        await compare(rng, tmp_path / str(number), 500, counted)
    print(f"{counted.total()} calls, {dict(counted)}")
    assert counted.total() == 100_000
