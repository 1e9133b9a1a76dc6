"""Masks: possible secrets in an entry are hidden, and restored when the entry is sent back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.capabilities.gateway.admin.masks import MASK, mask, remaining_masks, unmask

SECRET = "s3cret-canary"
LONG_KEY = "AbCdEf0123456789GhIjKlMn"
LETTERS = "abcdefghij0123456789klmnopqrstuv"
MARKED_KEYS = [
    f"sk-{LETTERS}",
    f"sk-proj-{LETTERS}",
    f"ghp_{LETTERS}wxyz",
    f"gho_{LETTERS}wxyz",
    f"github_pat_{LETTERS}",
    f"glpat-{LETTERS[:20]}",
    f"xoxb-{LETTERS}",
    "AKIA" + "ABCDEFGH01234567",
    f"AIza{LETTERS}",
]


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["--token", SECRET], ["--token", MASK]),
        (["--api-key", SECRET, "--verbose"], ["--api-key", MASK, "--verbose"]),
        (["--password", "--verbose"], ["--password", "--verbose"]),
        ([f"--key={SECRET}"], [f"--key={MASK}"]),
        ([f"api-key={SECRET}"], [f"api-key={MASK}"]),
        (["-e", f"GITHUB_TOKEN={SECRET}"], ["-e", f"GITHUB_TOKEN={MASK}"]),
        (["-H", f"Authorization: Bearer {SECRET}"], ["-H", f"Authorization: {MASK}"]),
        ([f"postgres://me:{SECRET}@host/base"], [f"postgres://{MASK}@host/base"]),
        ([f"--dsn=postgres://me:{SECRET}@host/base"], [f"--dsn=postgres://{MASK}@host/base"]),
        ([f"https://host/mcp?k={SECRET}&v=1"], [f"https://host/mcp?k={MASK}&v={MASK}"]),
        ([LONG_KEY], [MASK]),
        ([f"--with={LONG_KEY}"], [f"--with={MASK}"]),
        *(([key], [MASK]) for key in MARKED_KEYS),
        *(([f"--with={key}"], [f"--with={MASK}"]) for key in MARKED_KEYS),
        ([f"use {MARKED_KEYS[0]}, please"], [f"use {MASK}, please"]),
        (["-p", "hunter2"], ["-p", MASK]),
        (["-k", "pass!word"], ["-k", MASK]),
        (["--token", "${TOKEN}", "--key=${KEY}"], ["--token", "${TOKEN}", "--key=${KEY}"]),
    ],
)
def test_arguments_that_may_be_secret_are_masked(args: list[str], shown: list[str]) -> None:
    assert mask({"command": "x", "args": args}) == {"command": "x", "args": shown}
    assert unmask({"command": "x", "args": shown}, {"command": "x", "args": args})["args"] == args


@pytest.mark.parametrize(
    "argument",
    ["-y", "@modelcontextprotocol/server-filesystem", "/srv/documents/2024/Handbook", "--port=8080", "http://host/mcp"],
)
def test_what_is_plainly_no_secret_can_be_read(argument: str) -> None:
    assert mask({"args": [argument]}) == {"args": [argument]}


@pytest.mark.parametrize(
    "args",
    [
        ["-p", "8080"],
        ["-p", "8080:80"],
        ["-p", "project"],
        ["-p", "./notes2"],
        ["-p", "python3.12"],
        ["-k", "-v"],
        ["sk-learn-server-for-notebooks"],
        ["npm_config_registry"],
    ],
)
def test_what_may_as_well_be_something_else_can_be_read(args: list[str]) -> None:
    assert mask({"args": args}) == {"args": args}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"https://host/mcp?key={SECRET}", f"https://host/mcp?key={MASK}"),
        (f"https://host/mcp?{SECRET}", f"https://host/mcp?{MASK}"),
        (f"https://host/{LONG_KEY}/mcp", f"https://host/{MASK}/mcp"),
        (f"https://host/mcp#{SECRET}", f"https://host/mcp#{MASK}"),
        ("https://host:8443/mcp", "https://host:8443/mcp"),
        ("https://host/mcp?", "https://host/mcp?"),
    ],
)
def test_an_address_is_shown_without_the_values_in_it(url: str, shown: str) -> None:
    assert mask({"url": url}) == {"url": shown}
    assert unmask({"url": shown}, {"url": url}) == {"url": url}


def test_a_masked_argument_keeps_its_value_when_others_come_and_go() -> None:
    kept = {"args": ["--token", "one", "--key=two", "--password", "three"]}
    sent = {"args": ["--verbose", "--password", MASK, f"--key={MASK}", "--token", "new"]}
    assert unmask(sent, kept) == {"args": ["--verbose", "--password", "three", "--key=two", "--token", "new"]}


def test_a_mask_that_stands_for_nothing_is_found() -> None:
    sent = {"env": {"A": MASK}, "args": ["--token", MASK, "--key=new"], "url": f"https://host/other?key={MASK}"}
    meant = unmask(sent, {"args": ["--key=two"], "url": "https://host/mcp?key=two"})
    assert remaining_masks(meant) == ["env.A", "args[1]", "url"]
    assert remaining_masks({"env": {"A": "b"}, "args": ["c"], "url": "https://host/"}) == []


pieces = st.sampled_from(["--token", "--key=", "a", "=", ":", "://", "?", "&", "@", "/", LONG_KEY, SECRET, "${A}", " "])
texts = st.lists(pieces, max_size=6).map("".join)
entries = st.fixed_dictionaries(
    {},
    optional={
        "args": st.lists(texts, max_size=5),
        "url": texts.map(lambda rest: f"https://host/{rest}"),
        "env": st.dictionaries(st.sampled_from("AB"), texts),
        "headers": st.dictionaries(st.sampled_from("AB"), texts),
    },
)


@given(entries)
def test_whatever_is_shown_and_sent_back_is_as_it_was(entry: dict[str, Any]) -> None:
    assert unmask(mask(entry), entry) == entry
