"""A small corpus of every kind of text, served by the real command."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from support.client import ToolClient, connected
from support.corpus import CorpusProcess

GUIDE = """\
# Guide

How to run the lighthouse.

## Lamp

The lamp is lit at dusk by the keeper. Its lens turns once in thirty seconds, so that ships know which light they see.

## Fog

In fog the horn sounds every two minutes. The horn runs on compressed air from the cellar.
"""
LAMP = '''\
"""Drives the lamp."""


class Lamp:
    """The light itself."""

    def rotate_lens(self, seconds: float) -> None:
        """Turn the lens once in so many seconds."""
        self.motor.run(360 / seconds)

    def getFogSignal(self) -> str:
        return "two minutes"
'''
PAGE = """\
<html><head><title>Tides</title></head><body>
<h1>Tides</h1>
<p>High water comes twice a day at the harbour wall.</p>
</body></html>
"""


def write_corpus(directory: Path) -> None:
    """The files that the tests ask about."""
    (directory / "docs").mkdir(parents=True)
    (directory / "src").mkdir()
    (directory / "docs/guide.md").write_text(GUIDE)
    (directory / "docs/tides.html").write_text(PAGE)
    (directory / "src/lamp.py").write_text(LAMP)
    (directory / "ships.csv").write_text("name,tons\nAurora,1200\nBoreas,800\n")
    (directory / "notes.txt").write_text("The supply boat comes on Mondays with oil and bread.\n")
    (directory / ".env").write_text("PASSWORD=unguessable\n")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[CorpusProcess]:
    """A server that has indexed the files."""
    directory = tmp_path_factory.mktemp("lighthouse")
    write_corpus(directory)
    with CorpusProcess(directory) as process:
        process.wait_until_indexed()
        yield process


@pytest.fixture
async def corpus(served: CorpusProcess) -> AsyncGenerator[ToolClient]:
    """A client of that server."""
    async with connected(served.url, key=served.token) as client:
        yield client
