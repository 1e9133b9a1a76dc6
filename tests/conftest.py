"""Fixtures for every test."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Async tests run as the server does."""
    return "asyncio", {"use_uvloop": True}
