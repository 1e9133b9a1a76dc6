"""Follow-up questions: which ones are combined with earlier ones, and what is found with them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from armarium.capabilities.corpus.query.search import Filters
from armarium.providers.interfaces import Message
from armarium.providers.vendors import OPENAI
from armarium.retrieval.search.follow_ups import combined_question, searchable_question
from support.open_corpus import OpenCorpus

FILES = {
    "bridge.md": "The bridge over the strait was opened in 1931. It is 412 metres long and carries two lanes.",
    "tunnel.md": "The tunnel under the hill was dug in 1890. It is 900 metres long and has one track.",
    "ferry.md": "The ferry sails six times a day. A ticket costs four crowns. The captain is Anna Berg.",
    "museum.md": "The museum is open from ten to five. The entrance costs eight crowns. Its director is Ole Lind.",
    "backup.md": "The nightly backup runs at three. It is kept for thirty days and stored in the vault.",
    "report.md": "The harbour office writes the monthly report. It is kept for ten years and stored in the archive.",
    "lamp.md": "The lamp is lit at dusk by the keeper. Its lens turns once in thirty seconds and weighs two tons.",
    "horn.md": "In fog the horn sounds every two minutes. Each blast is five seconds long. It runs on compressed air.",
}
BRIDGE, BACKUP, REPORT = "When was the bridge opened?", "When does the nightly backup run?", "Who writes the report?"
HORN, MUSEUM, FERRY = "How often does the horn sound?", "When is the museum open?", "How often does the ferry sail?"
FOLLOW_UPS = [
    ([BRIDGE], "and how long is it?", "bridge.md"),
    (["When was the tunnel dug?"], "and how long is it?", "tunnel.md"),
    ([FERRY], "what does a ticket cost?", "ferry.md"),
    ([FERRY], "who is its captain?", "ferry.md"),
    ([MUSEUM], "and how much is it?", "museum.md"),
    ([MUSEUM], "who is the director?", "museum.md"),
    ([BACKUP], "how long is it kept?", "backup.md"),
    ([REPORT], "how long is it kept?", "report.md"),
    ([REPORT, "how long is it kept?"], "and where is it stored?", "report.md"),
    ([BACKUP, "how long is it kept?"], "where?", "backup.md"),
    (["Who lights the lamp?"], "how heavy is its lens?", "lamp.md"),
    ([HORN], "and how long is each blast?", "horn.md"),
    ([HORN], "what does it run on?", "horn.md"),
    ([BRIDGE], "How often does the ferry sail each day?", "ferry.md"),
    (["Wann wurde die bridge geöffnet?"], "und wie lang ist sie?", "bridge.md"),
]


async def test_a_follow_up_finds_what_it_is_about(tmp_path: Path) -> None:
    root = tmp_path / "island"
    root.mkdir()
    for name, text in FILES.items():
        (root / name).write_text(f"# {name.removesuffix('.md').title()}\n\n{text}\n")
    alone: list[bool] = []
    together: list[bool] = []
    async with OpenCorpus(root).opened() as corpus:

        async def best(query: str) -> str:
            return (await corpus.search(query, 1, "auto", Filters())).hits[0].chunk.rel_path

        for earlier, question, expected in FOLLOW_UPS:
            alone.append(await best(question) == expected)
            together.append(await best(combined_question(question, earlier)) == expected)
    assert all(together), [case for case, is_right in zip(FOLLOW_UPS, together, strict=True) if not is_right]
    assert sum(alone) <= 9, "the follow-ups must need the earlier questions"


@pytest.mark.parametrize(
    ("question", "earlier", "expected"),
    [
        ("How long is the blast of the horn in seconds?", [BRIDGE], "How long is the blast of the horn in seconds?"),
        ("How long is its blast in seconds of time?", [HORN], f"{HORN} How long is its blast in seconds of time?"),
        ("why?", [BRIDGE, "and how long is it?"], f"{BRIDGE} and how long is it? why?"),
        ("why?", ["it?", "this?"], "it? this? why?"),
        ("why?", [], "why?"),
    ],
)
def test_only_questions_that_refer_to_others_are_combined(question: str, earlier: list[str], expected: str) -> None:
    assert combined_question(question, earlier) == expected


class ScriptedChat:
    """A chat model that says what it is told to say, or fails."""

    model = "scripted"

    def __init__(self, *pieces: str, fails: bool = False) -> None:
        self.pieces, self.fails = pieces, fails
        self.asked: list[Sequence[Message]] = []

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[str]:
        self.asked.append(messages)
        for piece in self.pieces:
            yield piece
        if self.fails:
            raise OPENAI.unavailable("it ended early")

    async def aclose(self) -> None: ...


async def test_a_chat_model_rewrites_what_refers_to_earlier_questions() -> None:
    chat = ScriptedChat("How long is ", "the bridge?\n")
    assert await searchable_question("and how long is it?", [" ", BRIDGE], chat) == "How long is the bridge?"
    ((system, user),) = chat.asked
    assert system.role == "system"
    assert user.content == f"Earlier questions:\n- {BRIDGE}\n\nLast question: and how long is it?"
    assert await searchable_question("and how long is it?", [], chat) == "and how long is it?"
    assert len(chat.asked) == 1


@pytest.mark.parametrize("chat", [ScriptedChat("How", fails=True), ScriptedChat(" "), ScriptedChat("x" * 2000)])
async def test_without_a_usable_version_the_questions_are_combined(chat: ScriptedChat) -> None:
    found = await searchable_question("and how long is it?", [BRIDGE], chat)
    assert found == f"{BRIDGE} and how long is it?"
