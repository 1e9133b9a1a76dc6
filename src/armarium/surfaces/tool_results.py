"""Builds MCP results of limited size from the answers of tools. Large results are encoded in a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from armarium.foundation.errors import ResponseTooLarge
from armarium.foundation.schema import Json
from armarium.foundation.settings.model import LimitSettings
from armarium.foundation.tools import Relayed, ToolSpec, as_json_text
from armarium.surfaces.caller_limits import BytesInFlight
from armarium.surfaces.json.encoder import (
    LARGE_CHARACTERS,
    EncodedJson,
    encode_answer,
    encode_result,
    encode_value,
    estimate_size,
)
from armarium.surfaces.json.threads import run_in_json_thread

ResultForm = Literal["plain", "encoded", "structured"]
"""What a surface needs: plain values; large parts as `EncodedJson`; the same without the text content."""

_WORST_GROWTH = 12
"""A character takes up to six bytes as JSON, and most answers appear in a result twice."""


class ToolResults:
    """Builds results within the limits of each caller and of the server."""

    def __init__(self, limits: LimitSettings) -> None:
        self._max_bytes = limits.max_response_bytes
        self.in_flight = BytesInFlight(
            "response_bytes_in_flight",
            limits.response_bytes_in_flight,
            limits.total_response_bytes_in_flight,
            # Results that wait are in memory too.
            max_waiting=(8 * limits.response_bytes_in_flight, 4 * limits.total_response_bytes_in_flight),
        )

    async def from_answer(self, caller: str, tool: ToolSpec, answer: Json, form: ResultForm) -> tuple[Json, int | None]:
        """The result for the answer of a tool and, if it was measured, its size."""
        size = estimate_size(answer)
        if size < LARGE_CHARACTERS:
            if form == "structured":
                return {"structuredContent": answer}, size
            meta = tool.meta(answer) if tool.meta is not None else {}
            result = {"content": self._texts(tool, answer), "structuredContent": answer}
            return result | ({"_meta": meta} if meta else {}), None
        if form == "plain":
            content = await run_in_json_thread(self._texts, tool, answer)
            if size >= self._max_bytes // _WORST_GROWTH:
                await run_in_json_thread(encode_answer, answer, [part["text"] for part in content], self._max_bytes)
            return {"content": content, "structuredContent": answer}, None

        def encode() -> Json:
            if form == "structured":
                return {"structuredContent": encode_value(answer, self._max_bytes)}
            texts = None if tool.text is as_json_text else tool.text(answer)
            return encode_answer(answer, texts, self._max_bytes)

        return await self._encoded(caller, size, encode)

    async def from_relayed(self, caller: str, relayed: Relayed, form: ResultForm) -> tuple[Json, int | None]:
        """The result for an answer of an upstream and, if it was measured, its size."""
        result: Json = {"content": [*relayed.content]}
        if relayed.structured is not None:
            result["structuredContent"] = relayed.structured
        if relayed.is_error:
            result["isError"] = True
        size = estimate_size(result)
        if size < LARGE_CHARACTERS or form == "plain":
            return result, None
        return await self._encoded(caller, size, lambda: encode_result(result, self._max_bytes))

    def _texts(self, tool: ToolSpec, answer: Json) -> list[Json]:
        texts = tool.text(answer)
        if sum(map(len, texts)) > self._max_bytes:
            raise ResponseTooLarge(
                f"the answer has more than {self._max_bytes} characters", hint="ask for a smaller part"
            )
        return [{"type": "text", "text": text} for text in texts]

    async def _encoded(self, caller: str, size: int, encode: Callable[[], Json]) -> tuple[Json, int]:
        reservation = await self.in_flight.acquire(caller, 2 * size)
        try:
            result = await run_in_json_thread(encode)
        except BaseException:
            reservation.release()
            raise
        parts = [value for value in result.values() if isinstance(value, EncodedJson)]
        encoded_bytes = sum(part.size for part in parts)
        reservation.resize(encoded_bytes)
        reservation.release_with(parts)
        return result, encoded_bytes
