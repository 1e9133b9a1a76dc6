"""Which indexes a search uses."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.corpus.ingest.embedding_task import EmbeddingTask
from armarium.capabilities.corpus.service import Corpus
from support.client import ToolClient, connected
from support.corpus import CorpusProcess
from support.corpus_calls import WITHOUT_WATCHING, answer
from support.open_corpus import OpenCorpus, found
from support.waiting import eventually

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
    ("query", "first"),
    [
        ("fit_tide", "levels.ipynb"),
        ("where is fitTide called", "levels.ipynb"),
        ("user name", "accounts.py"),
        ("getUserName", "accounts.py"),
        ("how is the owner of an account found?", "accounts.py"),
        ("bread and flour", "bread.md"),
    ],
)
async def test_auto_searches_prose_and_code_whatever_the_wording(tides: ToolClient, query: str, first: str) -> None:
    found = await answer(tides, "search", query=query)
    assert (found["index_used"], found["hits"][0]["rel_path"]) == ("both", first)


@pytest.mark.parametrize("query", ["no_such_name", "zebra quagga", "def harbour(levels): return {};"])
async def test_words_that_are_nowhere_do_not_keep_auto_from_either_index(tides: ToolClient, query: str) -> None:
    assert (await answer(tides, "search", query=query))["index_used"] == "both"


@pytest.mark.parametrize("query", ["how is the owner of an account found?", "bread and flour", "getUserName"])
async def test_auto_finds_what_both_finds(tides: ToolClient, query: str) -> None:
    auto, both = [await answer(tides, "search", query=query, index=index) for index in ("auto", "both")]
    assert auto["hits"] == both["hits"]


@pytest.mark.parametrize(("query", "index"), [("fit_tide", "code"), ("user name", "text")])
async def test_an_index_that_is_named_is_the_only_one(tides: ToolClient, query: str, index: str) -> None:
    assert (await answer(tides, "search", query=query, index=index))["index_used"] == index


@pytest.mark.parametrize(
    ("filters", "index_used"),
    [
        ({"file_glob": "*.py"}, "code"),
        ({"doc_types": ["code"]}, "code"),
        ({"path_prefix": "bread"}, "text"),
        ({"doc_types": ["md"]}, "text"),
        ({"file_glob": "{*.py,*.md}"}, "both"),
        ({"doc_types": ["code", "md"]}, "both"),
    ],
)
async def test_auto_leaves_out_the_index_in_which_the_filters_leave_nothing(
    tides: ToolClient, filters: dict[str, Any], index_used: str
) -> None:
    found = await answer(tides, "search", query="fit_tide", **filters)
    assert found["index_used"] == index_used
    assert "levels.ipynb" not in [hit["rel_path"] for hit in found["hits"]]


@pytest.mark.parametrize(("tool", "argument"), [("search", "query"), ("ask", "question")])
async def test_a_query_that_is_too_long_is_refused(tides: ToolClient, tool: str, argument: str) -> None:
    await answer(tides, tool, **{argument: "tide " * 4_000})
    refused = await tides.result(f"dir2mcp.{tool}", {argument: "x" * 12_000_000})
    error = (refused.structured_content or {})["error"]
    assert (error["code"], error["retryable"]) == ("INVALID_FIELD", False)


async def test_queries_are_in_the_log_by_length_and_hash_only(tides: ToolClient, served: CorpusProcess) -> None:
    await answer(tides, "search", query="Heliogabalus of Emesa")
    await answer(tides, "ask", question="Who was Heliogabalus?")
    await eventually(lambda: sum("sha256" in line for line in served.log) >= 2)
    assert not [line for line in served.log if "Heliogabalus" in line]


async def is_found(service: Corpus, name: str) -> bool:
    return name in await found(service, "keeper")


async def test_stats_names_the_argument_that_it_does_not_take(tides: ToolClient) -> None:
    refused = await tides.result("dir2mcp.stats", {"x": 1})
    assert (refused.structured_content or {})["error"]["message"] == "unknown argument `x`"


async def test_chunks_that_fit_equally_well_are_in_the_order_of_their_paths_however_they_were_indexed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_: EmbeddingTask) -> None:
        """No vectors: only lexical search ranks, and it scores these chunks equally."""

    monkeypatch.setattr(EmbeddingTask, "run", never)
    texts = {"a.md": "The keeper sails to northern harbours.\n", "b.md": "The keeper walks through southern meadows.\n"}
    for order in (["a.md", "b.md"], ["b.md", "a.md"]):
        root = tmp_path / order[0]
        root.mkdir()
        corpus = OpenCorpus(root)
        async with corpus.opened(wait=False) as service:
            for name in order:
                (root / name).write_text(texts[name])
                await corpus.changed(name)
                await eventually(lambda name=name, service=service: is_found(service, name))
            assert await found(service, "keeper") == ["a.md", "b.md"]
