"""Chat models behind an OpenAI-compatible HTTP endpoint, with streamed responses."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast

from armarium.foundation.schema import Json
from armarium.foundation.surrogates import replace_unpaired_surrogates
from armarium.providers.client import ProviderClient
from armarium.providers.interfaces import Message


class HostedChat:
    def __init__(self, client: ProviderClient, model: str) -> None:
        self.model = model
        self._client = client

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[str]:
        """The response, piece by piece. Raises when it ends early."""
        body: Json = {
            "model": self.model,
            "messages": [
                {"role": message.role, "content": replace_unpaired_surrogates(message.content)} for message in messages
            ],
            "stream": True,
        }
        async with aclosing(self._client.events("/chat/completions", body, is_last=_is_last)) as events:
            async for event in events:
                choice = _first_choice(event)
                if choice.get("finish_reason") == "error":
                    raise self._client.vendor.unavailable(
                        f"{self._client.vendor.name} failed in the middle of its response"
                    )
                if text := _text(choice):
                    yield text

    async def aclose(self) -> None:
        await self._client.aclose()


def _first_choice(event: Json) -> Json:
    # The last event of some servers only reports the usage and has no choice.
    choices = event.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return cast("Json", choices[0])
    return {}


def _is_last(event: Json) -> bool:
    return _first_choice(event).get("finish_reason") is not None


def _text(choice: Json) -> str:
    """The text of an event, or of the complete response of a server that does not stream."""
    message = choice.get("delta") or choice.get("message")
    if not isinstance(message, dict):
        return ""
    content: object = cast("Json", message).get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    # Reasoning models send pieces of several types; only those of type "text" belong to the response.
    pieces = [cast("dict[str, Any]", piece) for piece in cast("list[object]", content) if isinstance(piece, dict)]
    return "".join(str(piece.get("text") or "") for piece in pieces if piece.get("type") == "text")
