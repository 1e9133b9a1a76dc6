"""Tools that cannot be offered are left out one by one, and operators are told."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from armarium.capabilities.gateway.upstreams.tool_listing import MAX_TOOLS
from support.hostile_upstream import ODD_TOOLS, TOOLS
from support.upstreams import hostile_address, hostile_process, served, works


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_odd_tools_do_not_take_the_others_with_them(transport: str, caplog: pytest.LogCaptureFixture) -> None:
    async with hostile_address("--odd-tools") as over_http:
        spec = over_http if transport == "http" else hostile_process("--odd-tools")
        async with served(spec) as upstream:
            assert [tool.name for tool in await upstream.tools()] == TOOLS
            await works(upstream)
            (note,) = upstream.health().notes or ()
    assert note.startswith(f"{len(ODD_TOOLS)} tools are left out")
    assert "'with spaces'" in note
    assert "\n" not in note
    assert note in [getattr(record, "note", None) for record in caplog.records]


async def test_a_schema_that_is_none_is_left_out_where_arguments_are_validated() -> None:
    spec = replace(hostile_process("--invalid-schema"), kind="generic")
    async with served(spec) as upstream:
        assert [tool.name for tool in await upstream.tools()] == TOOLS


async def test_a_limit_on_tools_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with served(hostile_process("--many-tools", "10000")) as upstream:
        assert len(await upstream.tools()) == MAX_TOOLS
        (note,) = upstream.health().notes or ()
    assert note == f"{MAX_TOOLS} of {10_000 + len(TOOLS)} tools are offered; a server may have {MAX_TOOLS}"
    assert note in [getattr(record, "note", None) for record in caplog.records]


async def test_a_server_whose_tools_are_all_offered_has_no_note() -> None:
    async with served(hostile_process()) as upstream:
        await upstream.tools()
        assert upstream.health().notes is None
