"""Emulator of Mistral's embeddings and chat endpoints, validated against its published OpenAPI."""

from __future__ import annotations

from typing import ClassVar

from emulators import schemas
from emulators.openai_compatible import OpenAICompatibleEmulator
from emulators.server import Json


class _Checks:
    embedding_request = staticmethod(
        schemas.published_component("mistral", "EmbeddingRequest", schemas.EMBEDDING_REQUEST)
    )
    embedding_answer = staticmethod(
        schemas.published_component("mistral", "EmbeddingResponse", schemas.EMBEDDING_ANSWER)
    )
    chat_request = staticmethod(schemas.published_component("mistral", "ChatCompletionRequest", schemas.CHAT_REQUEST))
    chat_answer = staticmethod(schemas.published_component("mistral", "ChatCompletionResponse", schemas.CHAT_ANSWER))
    chat_event = staticmethod(schemas.published_component("mistral", "CompletionChunk", schemas.CHAT_EVENT))


class MistralEmulator(OpenAICompatibleEmulator):
    """Mistral with two embedding models and one chat model."""

    version = "v1"
    dimensions: ClassVar = {"mistral-embed": 1024, "codestral-embed": 1536}
    chat_models = ("mistral-small-2506",)
    dimension_field = "output_dimension"
    checks = _Checks

    def __init__(self, key: str = "mistral-emulator-key") -> None:
        super().__init__(key)

    def error_body(self, status: int, message: str, kind: str) -> Json:
        """Mistral's own shape of errors."""
        return {
            "object": "error",
            "message": message,
            "type": kind,
            "param": None,
            "code": "1300",
            "raw_status_code": status,
        }
