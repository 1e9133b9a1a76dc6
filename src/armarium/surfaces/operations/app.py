"""The operations of one server: their tools, routes and access rule. No tool of theirs is offered over MCP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from armarium.capability import CheckResult
from armarium.foundation.audit import AuditLog
from armarium.foundation.concurrency.tasks import background
from armarium.foundation.routes import Route, bind_routes, declare_route
from armarium.foundation.security.access import ADMINISTER, Access, AccessRule
from armarium.foundation.security.identity import Principal
from armarium.foundation.settings.model import CoreSettings
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import bind_tools, declare_tool
from armarium.surfaces.operations.calls import AUDIT, CALL_ROUTES, CALL_TOOLS, OwnCallsTools
from armarium.surfaces.operations.configuration import ConfigurationTools
from armarium.surfaces.operations.keys import KeyTools
from armarium.surfaces.operations.metric_series import MetricSeries
from armarium.surfaces.operations.status import ServedCapability, StatusTools

OPERATIONS: Final = "operations"
"""The name of the operations in logs, in the audit log and in the policy."""

METRICS: Final = "metrics"
"""The role of those who may read metrics."""
EVERY_CALL: Final = "audit"
"""The role of those who see the calls of all callers."""

_READS: Final[dict[str, Any]] = {"read_only": True, "idempotent": True}
_KEY: Final[dict[str, Any]] = {"role": ADMINISTER, "subject": ("", "name")}

STATUS_TOOLS: Final = (
    declare_tool("server_status", StatusTools.status, title="Status", for_every_caller=True, **_READS),
    declare_tool("metric_series", StatusTools.metric_series, title="Metrics over time", role=METRICS, **_READS),
)
KEY_TOOLS: Final = (
    declare_tool("list_keys", KeyTools.list_keys, title="Keys", role=ADMINISTER, **_READS),
    declare_tool("add_key", KeyTools.add_key, title="Add a key", **_KEY),
    declare_tool("rotate_key", KeyTools.rotate_key, title="Rotate a key", destructive=True, **_KEY),
    declare_tool("revoke_key", KeyTools.revoke_key, title="Revoke a key", destructive=True, **_KEY),
)
CONFIGURATION_TOOLS: Final = (
    declare_tool("show_settings", ConfigurationTools.show_settings, title="Settings", role=ADMINISTER, **_READS),
    declare_tool("doctor", ConfigurationTools.doctor, title="Checks", role=ADMINISTER, **_READS),
)
ROUTES: Final = (
    declare_route("GET", "/status", "server_status", "Show what the server is and does", at_root=True),
    declare_route("GET", "/metrics/series", "metric_series", "Show metrics over time", at_root=True),
    declare_route("GET", "/admin/keys", "list_keys", "List the keys of callers", at_root=True),
    declare_route("POST", "/admin/keys", "add_key", "Add a key", success=201, at_root=True),
    declare_route("POST", "/admin/keys/{name}/rotate", "rotate_key", "Replace the secret of a key", at_root=True),
    declare_route("DELETE", "/admin/keys/{name}", "revoke_key", "Revoke a key", at_root=True),
    declare_route("GET", "/admin/settings", "show_settings", "Show the settings in effect", at_root=True),
    declare_route("GET", "/admin/doctor", "doctor", "Check the set-up", at_root=True),
)


@dataclass(frozen=True, slots=True)
class Operations:
    access: Access
    routes: Sequence[tuple[str, Sequence[Route]]]
    """By the name under which their calls are recorded."""


@asynccontextmanager
async def open_operations(
    settings: CoreSettings,
    capabilities: Sequence[ServedCapability],
    metrics: Metrics,
    run_checks: Callable[[], Sequence[CheckResult]],
    audit: AuditLog | None,
) -> AsyncGenerator[Operations]:
    """Sample the metrics while the block runs."""
    series = MetricSeries(metrics.registry)
    async with background(series.run):
        yield _operations(settings, capabilities, metrics, series, run_checks, audit)


def declared_routes() -> Sequence[tuple[str, Sequence[Route]]]:
    """All routes of the operations, for the reference pages. Their tools cannot run."""
    tools = [*STATUS_TOOLS, *KEY_TOOLS, *CONFIGURATION_TOOLS]
    return [
        (OPERATIONS, bind_routes(ROUTES, [tool.spec for tool in tools])),
        (AUDIT, bind_routes(CALL_ROUTES, [tool.spec for tool in CALL_TOOLS])),
    ]


def _operations(
    settings: CoreSettings,
    capabilities: Sequence[ServedCapability],
    metrics: Metrics,
    series: MetricSeries,
    run_checks: Callable[[], Sequence[CheckResult]],
    audit: AuditLog | None,
) -> Operations:
    access = operations_access(settings)
    status = StatusTools(
        capabilities,
        metrics,
        series,
        settings.state_path(),
        _features(settings),
        lambda call: access.admits(call.principal, METRICS),
    )
    listed = settings.security.keys if settings.security.auth == "keys" else ()
    keys = KeyTools(
        settings.keys_file(),
        [(key.username, key.groups, key.key_sha256) for key in listed],
        [each.access.capability for each in capabilities],
        audit.file if audit is not None else None,
    )
    configuration = ConfigurationTools(settings, run_checks)
    tools = [
        *bind_tools(STATUS_TOOLS, status, access),
        *bind_tools(KEY_TOOLS, keys, access),
        *bind_tools(CONFIGURATION_TOOLS, configuration, access),
    ]
    routes = [(OPERATIONS, bind_routes(ROUTES, tools))]
    if audit is not None:
        calls = OwnCallsTools(audit, partial(sees_calls_of, access))
        routes.append((AUDIT, bind_routes(CALL_ROUTES, bind_tools(CALL_TOOLS, calls))))
    return Operations(access, routes)


def operations_access(settings: CoreSettings) -> Access:
    """Who may use the operations. A key that is restricted to capabilities may not: they show all of them."""
    security = settings.security
    groups = {METRICS: security.metrics_groups, EVERY_CALL: security.audit_groups, ADMINISTER: security.admin_groups}
    if security.auth == "none":
        # Nobody is in a group then.
        del groups[METRICS]
    return Access(OPERATIONS, AccessRule(narrower={role: frozenset(names) for role, names in groups.items()}))


def sees_calls_of(access: Access, principal: Principal, person: str | None) -> bool:
    """Whether the caller may see the calls of this person; None stands for everybody."""
    return principal.person == person or access.admits(principal, EVERY_CALL)


def _features(settings: CoreSettings) -> dict[str, bool]:
    return {
        "audit": settings.audit.enabled,
        "pipe": settings.pipe.enabled,
        "authentication": settings.security.auth != "none",
        "tls": settings.server.tls.certificate is not None,
        "network": settings.network != "off",
    }
