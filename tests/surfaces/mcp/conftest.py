"""Fixtures: a served application with the default settings, and clients of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx
import pytest

from support.mcp_messages import http_client, open_session, serving
from support.mcp_test_server import Rig, build


@pytest.fixture
async def rig() -> Rig:
    """A server with the usual settings."""
    return build()


@pytest.fixture
async def address(rig: Rig) -> AsyncGenerator[str]:
    """That server, serving."""
    async with serving(rig.app) as url:
        yield url


@pytest.fixture
async def http(address: str) -> AsyncGenerator[httpx.AsyncClient]:
    """Plain HTTP as Alice."""
    async with http_client(address) as client:
        yield client


@pytest.fixture
async def session(http: httpx.AsyncClient) -> dict[str, str]:
    """The header of a session that Alice opened on /mcp."""
    return await open_session(http)
