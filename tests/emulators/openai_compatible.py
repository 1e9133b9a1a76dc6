"""Base of the emulators with OpenAI-compatible embeddings and chat endpoints."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar

from emulators.model_output import answer, embedding
from emulators.server import Emulator, Json, Stream, VendorRefusal, Whole

_PIECE_CHARS = 11
"""Short, so that words and citations are split between events."""


class OpenAICompatibleEmulator(Emulator):
    """A provider of embedding and chat models."""

    dimensions: ClassVar[dict[str, int]]
    """The dimensions of each embedding model."""
    chat_models: tuple[str, ...]
    dimension_field: str
    checks: Any

    def __init__(self, key: str | None) -> None:
        super().__init__(key)
        self.invents_citations = False
        """Whether chat responses cite a file that is not in the prompt."""
        self.streams = True
        """Whether chat responses are streamed on request; some servers cannot."""
        self.token_limit: int | None = None
        """After how many words a chat response ends."""
        self.longest_request_tokens = 16_384
        self.most_inputs = 512

    def respond(self, path: str, body: Json) -> Whole | Stream:
        """Answer a request."""
        if path == "/embeddings":
            return self._embeddings(body)
        if path == "/chat/completions":
            return self._chat(body)
        raise VendorRefusal(404, self.error_body(404, "no Route matched with those values", "not_found"))

    def _embeddings(self, body: Json) -> Whole:
        self.complain_about_request(self.checks.embedding_request(body))
        inputs = [body["input"]] if isinstance(body["input"], str) else body["input"]
        dimensions = body.get(self.dimension_field) or self.dimensions.get(body["model"])
        tokens = sum(_tokens(text) for text in inputs)
        if dimensions is None:
            raise VendorRefusal(400, self.error_body(400, f"Invalid model: {body['model']}", "invalid_model"))
        if not inputs or not all(inputs) or len(inputs) > self.most_inputs:
            raise VendorRefusal(400, self.error_body(400, "Number of inputs is out of range", "invalid_request"))
        if tokens > self.longest_request_tokens:
            raise VendorRefusal(400, self.error_body(400, "Too many tokens in batch", "invalid_request"))
        rows = [
            {"object": "embedding", "index": index, "embedding": embedding(text, dimensions)}
            for index, text in enumerate(inputs)
        ]
        # The API does not promise an order.
        rows.reverse()
        usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
        made = {"id": "emb-1", "object": "list", "model": body["model"], "data": rows, "usage": usage}
        return Whole(made, self.checks.embedding_answer)

    def _chat(self, body: Json) -> Whole | Stream:
        self.complain_about_request(self.checks.chat_request(body))
        if body["model"] not in self.chat_models:
            raise VendorRefusal(400, self.error_body(400, f"Invalid model: {body['model']}", "invalid_model"))
        text = answer(body["messages"], invents=self.invents_citations)
        said = " ".join(text.split(" ")[: self.token_limit])
        reason = "stop" if said == text else "length"
        prompt_tokens = sum(_tokens(message["content"]) for message in body["messages"])
        used = {"prompt_tokens": prompt_tokens, "completion_tokens": _tokens(said)}
        usage = {**used, "total_tokens": sum(used.values())}
        if body.get("stream") and self.streams:
            return Stream(_events(body["model"], said, reason, usage), self.checks.chat_event)
        message = {"role": "assistant", "content": said}
        made = {
            "id": "cmpl-1",
            "object": "chat.completion",
            "created": 1_750_000_000,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": usage,
        }
        return Whole(made, self.checks.chat_answer)


def _events(model: str, text: str, reason: str, usage: Json) -> Generator[Json]:
    def event(delta: Json, finish_reason: str | None = None, **more: Any) -> Json:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        made = {"id": "cmpl-1", "object": "chat.completion.chunk", "created": 1_750_000_000, "model": model}
        return {**made, "choices": [choice], **more}

    yield event({"role": "assistant", "content": ""})
    for start in range(0, len(text), _PIECE_CHARS):
        yield event({"content": text[start : start + _PIECE_CHARS]})
    yield event({"content": ""}, reason, usage=usage)


def _tokens(text: str) -> int:
    return len(text.encode("utf-8")) // 4 + 1
