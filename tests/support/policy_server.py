"""A server with every capability and groups for everything, and callers inside and outside of them."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armarium.foundation.security.authentication import open_authenticator
from armarium.foundation.security.identity import LOCAL
from armarium.foundation.security.keys import KeyFile
from armarium.foundation.settings.loader import checked
from armarium.foundation.tools import ToolSpec
from armarium.server import Server, open_server
from armarium.settings import Settings
from support import rag_upstream
from support.mcp_messages import serving

Json = dict[str, Any]

ROLES = {
    "sandbox": ("read", "write"),
    "store": ("read", "write"),
    "registry": ("read", "report", "judge", "administer"),
    "corpus": ("read", "write", "administer"),
    "gateway": ("read", "write", "administer"),
    "operations": ("metrics", "audit", "administer"),
}
"""The roles of each capability and of the server's operations, as the documentation tells them."""
WHOLE = {name: f"all-{name}" for name in ROLES if name != "operations"}
"""The group that each capability requires for every use."""
BY_ROLE = {(name, role): f"{role}-{name}" for name, roles in ROLES.items() for role in roles}
"""The group that each role requires, too."""
SECRET_ROOT, SECRET_PROJECT, SECRET_SERVER, SECRET_RAG_SERVER = "strongroom", "payroll-2026", "hidden", "hiddenRag"
RESOURCES = {SECRET_ROOT: "vault-keepers", SECRET_PROJECT: "paymasters", SECRET_SERVER: "insiders"}
"""Resources that require a group of their own, too."""
EVERY_GROUP = (*WHOLE.values(), *BY_ROLE.values(), *RESOURCES.values())
LINK_BASE = "https://links.invalid"
CANARY = "canary-77ab-for-members-alone"


@dataclass(frozen=True)
class KeyHolder:
    """A caller, and what their key permits."""

    name: str
    key: str | None
    groups: frozenset[str] = frozenset()
    capabilities: frozenset[str] | None = None
    read_only: bool = False
    is_valid: bool = True

    def may(self, capability: str, role: str, *, read_only: bool) -> bool:
        """The policy, as its documentation tells it."""
        if not self.is_valid or (self.read_only and not read_only):
            return False
        if self.capabilities is not None and capability not in self.capabilities:
            return False
        required = {BY_ROLE[capability, role], WHOLE.get(capability, BY_ROLE[capability, role])}
        return required <= self.groups

    def is_in(self, resource: str) -> bool:
        return RESOURCES[resource] in self.groups


@dataclass(frozen=True)
class PolicyServer:
    """The open server, its address, and everybody who calls it."""

    server: Server
    address: str
    testers: list[KeyHolder] = field(default_factory=list)

    @property
    def tools(self) -> dict[str, tuple[str, ToolSpec]]:
        """Every tool with its capability: fixed ones, those behind routes, and those of servers behind the gateway."""
        fixed = {tool.name: (capability, tool) for capability, tool in self.server.dispatcher.tools}
        provided = self.server.dispatcher.tool_providers.tools_for(LOCAL)
        return fixed | {tool.name: ("gateway", tool) for tool in provided}


@asynccontextmanager
async def policy_server(base: Path, dsn: str) -> AsyncGenerator[PolicyServer]:
    """Serve all five capabilities over real HTTP, and make a key for each tester."""
    for name in ("docs", SECRET_ROOT, "project", "corpus"):
        (base / name).mkdir()
        (base / name / "a.md").write_text(f"# Harbour\n\n{CANARY} in {name}.\n")
    _write_servers(base / "config")
    settings = checked(Settings, _settings(base, dsn), source="the test")
    testers = list(_testers(KeyFile(settings.keys_file())))
    async with open_server(settings) as server, serving(server.http(open_authenticator(settings))) as address:
        yield PolicyServer(server, address, testers)


def _settings(base: Path, dsn: str) -> Json:
    def restricted(name: str) -> Json:
        # The administrators of the gateway have a setting of their own.
        roles = [role for role in ROLES[name] if (name, role) != ("gateway", "administer")]
        return {"groups": [WHOLE[name]], "access": {role: [BY_ROLE[name, role]] for role in roles}}

    def root(name: str, **more: Any) -> Json:
        return {"name": name, "path": str(base / name), "allowed_tools": ["*"], **more}

    secret_root = {"groups": [RESOURCES[SECRET_ROOT]]}
    return {
        "state_dir": str(base / "state"),
        "server": {"port": 0},
        "limits": {"requests_per_second": None, "calls_in_flight": 10_000},
        "pipe": {"max_steps": 1000, "max_result_bytes": 1 << 28},
        "security": {
            "auth": "keys",
            "metrics_groups": [BY_ROLE["operations", "metrics"]],
            "audit_groups": [BY_ROLE["operations", "audit"]],
            "admin_groups": [BY_ROLE["operations", "administer"]],
        },
        "sandbox": {"roots": [root("docs"), root(SECRET_ROOT, **secret_root)], **restricted("sandbox")},
        "store": {
            "dsn": dsn,
            "rate": {"calls_per_second": 1e6, "burst": 10**6},
            "projects": [{"name": "payroll-*", "groups": [RESOURCES[SECRET_PROJECT]]}],
            **restricted("store"),
        },
        "registry": {"project": str(base / "project"), **restricted("registry")},
        "corpus": {"root": str(base / "corpus"), **restricted("corpus")},
        "gateway": {
            "config_dir": str(base / "config"),
            "admin_group": BY_ROLE["gateway", "administer"],
            "limits": {"rate_per_minute": None},
            "downloads": {"base_url": LINK_BASE},
            "watch": False,
            **restricted("gateway"),
        },
    }


def _write_servers(config: Path) -> None:
    program = {"command": sys.executable, "args": ["-I", str(Path(rag_upstream.__file__)), "pages"]}
    entry = {**program, "groups": [RESOURCES[SECRET_SERVER]]}
    (config / "overrides").mkdir(parents=True)
    (config / "overrides" / "mcp.json").write_text(json.dumps({SECRET_SERVER: entry}))
    (config / "overrides" / "rag-mcp.json").write_text(json.dumps({SECRET_RAG_SERVER: entry}))


def _testers(keys: KeyFile) -> Iterator[KeyHolder]:
    def tester(
        name: str, groups: frozenset[str], capability: str | None = None, *, read_only: bool = False
    ) -> KeyHolder:
        capabilities = None if capability is None else (capability,)
        access = "read" if read_only else "write"
        _, key = keys.add(name, groups=tuple(sorted(groups)), capabilities=capabilities, access=access)
        return KeyHolder(name, key, groups, capabilities and frozenset(capabilities), read_only)

    everything = frozenset(EVERY_GROUP)
    yield tester("inside", everything)
    yield tester("reader", everything, read_only=True)
    yield tester("outside", frozenset())
    yield tester("misspelled", frozenset(group.upper() for group in everything))
    for name in ROLES:
        yield tester(f"only-{name}", everything, name)
    for name in WHOLE:
        yield tester(f"not-{name}", everything - {WHOLE[name]})
        yield tester(f"groups-of-{name}", frozenset([WHOLE[name], *(BY_ROLE[name, role] for role in ROLES[name])]))
    for (name, role), group in BY_ROLE.items():
        yield tester(f"no-{role}-{name}", everything - {group})
    for resource, group in RESOURCES.items():
        yield tester(f"no-{resource}", everything - {group})
    expired = tester("revoked", everything)
    keys.revoke("revoked")
    yield KeyHolder("revoked", expired.key, is_valid=False)
    yield KeyHolder("stranger", "arm_not-a-key", is_valid=False)
    yield KeyHolder("nobody", None, is_valid=False)
