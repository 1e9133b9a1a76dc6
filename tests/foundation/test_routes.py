"""Where a route expects the arguments of its tool, and invalid routes."""

from __future__ import annotations

from typing import Any

import pytest

from armarium.capability import Capability
from armarium.foundation.routes import Place, Route
from armarium.foundation.security.identity import Principal
from armarium.foundation.tools import ToolSpec, remote_tool


async def forward(call: Any, arguments: Any) -> dict[str, Any]:
    return {}


def tool(name: str = "write") -> ToolSpec:
    properties = {argument: {"type": "string"} for argument in ("project", "path", "content", "mode")}
    return remote_tool(name, "Write.", {"type": "object", "properties": properties}, forward)


@pytest.mark.parametrize(
    ("route", "places"),
    [
        (Route("GET", "/{project}/file", tool(), "Read"), ["path", "query", "query", "query"]),
        (Route("DELETE", "/file", tool(), "Drop", presets={"mode": "x"}), ["query", "query", "query", "preset"]),
        (Route("POST", "/{project}/file", tool(), "Make"), ["path", "body", "body", "body"]),
        (
            Route("PUT", "/{project}/file", tool(), "Put", query=frozenset({"path"}), presets={"mode": "x"}),
            ["path", "query", "body", "preset"],
        ),
        (Route("PATCH", "/{project}", tool(), "Patch", whole_body="content"), ["path", "query", "body", "query"]),
    ],
)
def test_every_argument_has_one_place(route: Route, places: list[Place]) -> None:
    assert [route.place_of(name) for name in ("project", "path", "content", "mode")] == places
    assert route.place_of("nobody's") is None


@pytest.mark.parametrize(
    "route",
    [
        {"method": "GET", "path": "file"},
        {"method": "GET", "path": "/"},
        {"method": "GET", "path": "/{path:path}"},
        {"method": "GET", "path": "/a//b"},
        {"method": "GET", "path": "/../x"},
        {"method": "GET", "path": "/{other}"},
        {"method": "GET", "path": "/{path}/{path}"},
        {"method": "PUT", "path": "/{path}", "query": frozenset({"path"})},
        {"method": "PUT", "path": "/x", "query": frozenset({"mode"}), "presets": {"mode": "x"}},
        {"method": "PUT", "path": "/x", "presets": {"other": "x"}},
        {"method": "PUT", "path": "/x", "whole_body": "other"},
        {"method": "GET", "path": "/x", "whole_body": "content"},
        {"method": "GET", "path": "/x", "query": frozenset({"mode"})},
    ],
)
def test_a_route_that_cannot_be_is_refused_when_it_is_made(route: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"route|arguments|query"):
        Route(tool=tool(), summary="Do", **route)


def test_what_only_a_route_names_can_be_called_and_is_not_offered() -> None:
    offered, hidden = tool("offered"), tool("hidden")
    routes = [Route("GET", f"/{each.name}", each, "Do") for each in (offered, hidden, hidden)]
    capability = Capability("demo", [offered], "", routes)
    assert list(capability.tools) == [offered]
    assert list(capability.every_tool) == [offered, hidden]


def test_a_route_stands_below_its_capability_unless_it_is_told_to_stand_at_the_root() -> None:
    assert Route("GET", "/file", tool(), "Read").path_of("store") == "/store/file"
    assert Route("GET", "/file", tool(), "Read", at_root=True).path_of("store") == "/file"


@pytest.mark.parametrize(
    ("wanted", "groups", "may_pass"),
    [((), (), True), (("admin",), (), False), (("admin", "staff"), ("staff",), True), (("admin",), ("staff",), False)],
)
def test_a_route_with_groups_admits_their_members(
    wanted: tuple[str, ...], groups: tuple[str, ...], may_pass: bool
) -> None:
    route = Route("GET", "/file", tool(), "Read", groups=frozenset(wanted))
    assert route.admits(Principal("alice", groups, "")) is may_pass
