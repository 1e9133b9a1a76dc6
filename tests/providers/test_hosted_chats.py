"""Streamed responses from Mistral and from OpenAI-compatible endpoints."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from typing import Any

import pytest

from armarium.providers.client import ProviderClient
from armarium.providers.errors import ProviderUnavailable
from armarium.providers.hosted import HostedChat
from armarium.providers.interfaces import Chat, Message
from armarium.providers.vendors import MISTRAL, OPENAI
from emulators import MistralEmulator, OpenAIEmulator, RateLimited, ServerError, Truncated, Unusable
from emulators.model_output import INVENTED_CITATION
from support.manual_clock import ManualClock

PROMPT = "[notes/rain.md:L3-L9]\nRain falls in spring.\n\n[sea.pdf#p=4]\nThe sea rises.\n\nWhen does it rain?"
CONVERSATION = [Message("system", "Cite your sources."), Message("user", PROMPT)]
ANSWER = (
    "It says: Rain falls in spring. [notes/rain.md:L3-L9]. It says: The sea rises. When does it rain? [sea.pdf#p=4]."
)
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
SAID = {"type": "text", "text": "Yes."}


@pytest.fixture
def mistral() -> Generator[MistralEmulator]:
    with MistralEmulator() as emulator:
        yield emulator


@pytest.fixture
async def chat(mistral: MistralEmulator) -> AsyncGenerator[Chat]:
    client = ProviderClient(MISTRAL, mistral.key or "", base_url=mistral.url, clock=ManualClock().clock)
    chat = HostedChat(client, "mistral-small-2506")
    yield chat
    await chat.aclose()


async def test_an_answer_comes_in_pieces_that_make_it_up(mistral: MistralEmulator, chat: Chat) -> None:
    pieces = [piece async for piece in chat.stream(CONVERSATION)]
    assert len(pieces) > 5
    assert "".join(pieces) == ANSWER
    (body,) = mistral.bodies("/chat/completions")
    assert body["messages"][0] == {"role": "system", "content": "Cite your sources."}
    assert body["stream"] is True
    assert body.keys() == {"model", "messages", "stream"}


async def test_an_answer_may_end_at_the_limit_of_the_model(mistral: MistralEmulator, chat: Chat) -> None:
    mistral.token_limit = 4
    assert "".join([piece async for piece in chat.stream(CONVERSATION)]) == "It says: Rain falls"


async def test_an_emulated_model_can_invent_a_citation(mistral: MistralEmulator, chat: Chat) -> None:
    mistral.invents_citations = True
    assert INVENTED_CITATION in "".join([piece async for piece in chat.stream(CONVERSATION)])


async def test_an_answer_that_breaks_off_raises_after_what_came(mistral: MistralEmulator, chat: Chat) -> None:
    mistral.faults.append(Truncated(after_events=4, cleanly=True))
    pieces: list[str] = []

    async def receive() -> None:
        async for piece in chat.stream(CONVERSATION):
            pieces.append(piece)

    with pytest.raises(ProviderUnavailable) as raised:
        await receive()
    assert (raised.value.code, raised.value.retryable) == ("MISTRAL_FAILED", True)
    assert ANSWER.startswith("".join(pieces))
    assert pieces


async def test_an_answer_is_waited_for_through_limits_and_failures(mistral: MistralEmulator, chat: Chat) -> None:
    mistral.faults.extend([RateLimited(retry_after=1), ServerError(status=502)])
    assert "".join([piece async for piece in chat.stream(CONVERSATION)]) == ANSWER
    assert len(mistral.requests) == 3


async def test_a_model_that_fails_in_its_answer_does_not_pass_for_one_that_ended(
    mistral: MistralEmulator, chat: Chat
) -> None:
    def change(event: dict[str, Any]) -> object:
        choice = event["choices"][0]
        return event | {"choices": [choice | {"finish_reason": choice["finish_reason"] and "error"}]}

    mistral.faults.append(Unusable(change=change))

    async def receive() -> None:
        async for _ in chat.stream(CONVERSATION):
            pass

    with pytest.raises(ProviderUnavailable):
        await receive()


@pytest.mark.parametrize(
    "delta",
    [
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                {"type": "text", "text": "Yes."},
            ]
        },
        {"content": "Yes.", "reasoning_content": "hm"},
        {"content": [SAID, {"type": "reference", "reference_ids": [1]}, "odd", None]},
    ],
)
async def test_only_what_is_said_is_part_of_the_answer(
    mistral: MistralEmulator, chat: Chat, delta: dict[str, Any]
) -> None:
    def change(event: dict[str, Any]) -> object:
        reason = event["choices"][0]["finish_reason"]
        return event | {"choices": [{"index": 0, "delta": delta if reason else {}, "finish_reason": reason}]}

    mistral.faults.append(Unusable(change=change))
    assert [piece async for piece in chat.stream(CONVERSATION)] == ["Yes."]


@pytest.mark.parametrize(
    "choices", [[], None, "none", [None], [{"delta": None}], [{"delta": "text"}], [{"delta": {"content": 7}}]]
)
async def test_events_without_text_are_passed_over(mistral: MistralEmulator, chat: Chat, choices: object) -> None:
    mistral.faults.append(Unusable(change=lambda event: {"choices": choices}))
    assert [piece async for piece in chat.stream(CONVERSATION)] == []


async def test_an_answer_can_be_left_early(mistral: MistralEmulator, chat: Chat) -> None:
    async with aclosing(chat.stream(CONVERSATION)) as pieces:
        first = await anext(pieces)
    assert ANSWER.startswith(first)
    assert "".join([piece async for piece in chat.stream(CONVERSATION)]) == ANSWER


async def test_a_question_with_an_unpaired_surrogate_is_answered(chat: Chat) -> None:
    question = [Message("user", "[a.md:L1-L1] half \ud800 a character")]
    assert "half ? a character" in "".join([piece async for piece in chat.stream(question)])


async def test_an_openai_compatible_endpoint_answers_without_a_key() -> None:
    with OpenAIEmulator() as emulator:
        chat: Chat = HostedChat(ProviderClient(OPENAI, base_url=emulator.url), "llama3.2")
        assert "".join([piece async for piece in chat.stream(CONVERSATION)]) == ANSWER
        await chat.aclose()


async def test_a_server_that_does_not_stream_is_understood() -> None:
    with OpenAIEmulator() as emulator:
        emulator.streams = False
        chat = HostedChat(ProviderClient(OPENAI, base_url=emulator.url), "llama3.2")
        assert [piece async for piece in chat.stream(CONVERSATION)] == [ANSWER]
        await chat.aclose()
