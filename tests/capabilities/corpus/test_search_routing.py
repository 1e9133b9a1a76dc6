"""Which index `auto` looks into when the words of the query are in the other one."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from corpus_calls import WITHOUT_WATCHING, answer

from support.client import ToolClient, connected
from support.corpus import CorpusProcess

NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Harbour levels"]},
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": ["levels = read_gauge('harbour')\n", "fit_tide(levels, constituents=8)"],
        },
    ],
    "metadata": {"language_info": {"name": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}
MODEL = """\
def fit(samples, weights):
    return solve(samples, weights)
"""
ACCOUNTS = """\
def getUserName(account):
    return account.owner
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[CorpusProcess]:
    directory: Path = tmp_path_factory.mktemp("tides")
    (directory / "levels.ipynb").write_text(json.dumps(NOTEBOOK))
    (directory / "model.py").write_text(MODEL)
    (directory / "accounts.py").write_text(ACCOUNTS)
    (directory / "bread.md").write_text("# Bread\n\nBread is baked from flour and water before dawn.\n")
    with CorpusProcess(directory, environ=WITHOUT_WATCHING) as process:
        process.wait_until_indexed()
        yield process


@pytest.fixture
async def tides(served: CorpusProcess) -> AsyncGenerator[ToolClient]:
    async with connected(served.url, key=served.token) as client:
        yield client


@pytest.mark.parametrize(
    ("query", "index_used", "first"),
    [
        ("fit_tide", "both", "levels.ipynb"),
        ("where is fitTide called", "both", "levels.ipynb"),
        ("user name", "both", "accounts.py"),
        ("getUserName", "code", "accounts.py"),
        ("bread and flour", "text", "bread.md"),
    ],
)
async def test_auto_looks_in_both_when_the_words_are_only_in_the_other_index(
    tides: ToolClient, query: str, index_used: str, first: str
) -> None:
    found = await answer(tides, "search", query=query)
    assert (found["index_used"], found["hits"][0]["rel_path"]) == (index_used, first)


@pytest.mark.parametrize(("query", "index_used"), [("no_such_name", "code"), ("zebra quagga", "text")])
async def test_words_that_are_nowhere_leave_auto_where_it_was(tides: ToolClient, query: str, index_used: str) -> None:
    assert (await answer(tides, "search", query=query))["index_used"] == index_used


@pytest.mark.parametrize(("query", "index"), [("fit_tide", "code"), ("user name", "text")])
async def test_an_index_that_is_named_is_the_only_one(tides: ToolClient, query: str, index: str) -> None:
    assert (await answer(tides, "search", query=query, index=index))["index_used"] == index


async def test_auto_does_not_look_past_the_filters(tides: ToolClient) -> None:
    found = await answer(tides, "search", query="fit_tide", file_glob="{*.py,*.md}")
    assert found["index_used"] == "code"
    assert "levels.ipynb" not in [hit["rel_path"] for hit in found["hits"]]


async def test_stats_names_the_argument_that_it_does_not_take(tides: ToolClient) -> None:
    refused = await tides.result("dir2mcp.stats", {"x": 1})
    assert (refused.structured_content or {})["error"]["message"] == "unknown argument `x`"
