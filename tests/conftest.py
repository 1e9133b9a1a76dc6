"""Fixtures for every test, and who may run while others run."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from support.soak import is_soak
from support.turns import Turns

# How fast examples are made says more about the machine, and about who else runs on it, than about the test.
_ANY_MACHINE = {"suppress_health_check": [HealthCheck.too_slow], "deadline": None}
# `make test` draws the same examples every time: what it reports is about the change under test. `make soak` draws new
# ones, and prints how to draw a failing one again.
settings.register_profile("test", derandomize=True, **_ANY_MACHINE)
settings.register_profile("soak", print_blob=True, **_ANY_MACHINE)
settings.load_profile("soak" if is_soak() else "test")

_TURNS = pytest.StashKey[Turns]()
_USER_STATE = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Async tests run as the server does."""
    return "asyncio", {"use_uvloop": True}


def pytest_configure(config: pytest.Config) -> None:
    """A worker beside other workers takes turns with them; a process that runs every test itself has nobody to ask."""
    # A shell without job control starts background commands with SIGINT ignored, and the servers under test inherit it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # What the programs under test keep for their user must not be kept for whoever runs the tests.
    config.stash[_USER_STATE] = tempfile.TemporaryDirectory(prefix="armarium-tests-")
    os.environ["XDG_STATE_HOME"] = config.stash[_USER_STATE].name
    if hasattr(config, "workerinput"):
        assert config.cache is not None
        config.stash[_TURNS] = Turns(config.cache.mkdir("turns"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the locks back."""
    if _TURNS in config.stash:
        config.stash[_TURNS].close()
    config.stash[_USER_STATE].cleanup()


# First, so that waiting for a turn does not count as time of the test.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test, with everything it is the first to need, in its turn."""
    if _TURNS not in item.config.stash:
        return (yield)
    with item.config.stash[_TURNS].turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)
