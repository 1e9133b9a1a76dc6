"""Emulator of an OpenAI-compatible endpoint, such as Ollama, vLLM or llama.cpp."""

from __future__ import annotations

from typing import ClassVar

from emulators import schemas
from emulators.openai_compatible import OpenAICompatibleEmulator
from emulators.server import Json


class _Checks:
    embedding_request = staticmethod(schemas.check(schemas.EMBEDDING_REQUEST))
    embedding_answer = staticmethod(schemas.check(schemas.EMBEDDING_ANSWER))
    chat_request = staticmethod(schemas.check(schemas.CHAT_REQUEST))
    chat_answer = staticmethod(schemas.check(schemas.CHAT_ANSWER))
    chat_event = staticmethod(schemas.check(schemas.CHAT_EVENT))


class OpenAIEmulator(OpenAICompatibleEmulator):
    """An OpenAI-compatible endpoint, without a key unless it is given one."""

    version = "v1"
    dimensions: ClassVar = {"nomic-embed-text": 768}
    chat_models = ("llama3.2",)
    dimension_field = "dimensions"
    checks = _Checks

    def __init__(self, key: str | None = None) -> None:
        super().__init__(key)
        self.longest_request_tokens = 300_000

    def error_body(self, status: int, message: str, kind: str) -> Json:
        """OpenAI's own shape of errors."""
        return {"error": {"message": message, "type": kind, "param": None, "code": kind}}
