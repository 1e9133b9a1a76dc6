"""From a tool's answer to a result of bounded size: small ones at once, large ones packed in a thread and counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from armarium.foundation.errors import ResponseTooLarge
from armarium.foundation.schema import Json
from armarium.foundation.tools import Relayed, ToolSpec, as_json_text
from armarium.surfaces.caller_limits import BytesInFlight, CallLimits
from armarium.surfaces.json_threads import in_json_thread
from armarium.surfaces.response_encoder import (
    LARGE_CHARACTERS,
    Packed,
    packed_answer,
    packed_result,
    packed_value,
    rough_size,
)

Form = Literal["plain", "packed", "structured"]
"""How a surface takes results: as plain JSON; with large parts packed; packed, and without the texts."""

_WORST_GROWTH = 12
"""A character takes up to six bytes as JSON, and most answers are in a result twice."""


class Responses:
    """Makes results of answers, within the limits of each caller and of all."""

    def __init__(self, limits: CallLimits) -> None:
        self._most_bytes = limits.max_response_bytes
        self._in_flight = BytesInFlight(
            "response_bytes_in_flight",
            limits.response_bytes_in_flight,
            limits.total_response_bytes_in_flight,
            # Answers that wait are in memory, too.
            most_waiting=(8 * limits.response_bytes_in_flight, 4 * limits.total_response_bytes_in_flight),
        )

    async def answered(self, caller: str, tool: ToolSpec, answer: Json, form: Form) -> tuple[Json, int | None]:
        """The result for an answer and, where it was counted, its size."""
        size = rough_size(answer)
        if size < LARGE_CHARACTERS:
            if form == "structured":
                return {"structuredContent": answer}, size
            return {"content": self._texts(tool, answer), "structuredContent": answer}, None
        if form == "plain":
            content = await in_json_thread(self._texts, tool, answer)
            if size >= self._most_bytes // _WORST_GROWTH:
                await in_json_thread(packed_answer, answer, [part["text"] for part in content], self._most_bytes)
            return {"content": content, "structuredContent": answer}, None

        def pack() -> Json:
            if form == "structured":
                return {"structuredContent": packed_value(answer, self._most_bytes)}
            texts = None if tool.text is as_json_text else tool.text(answer)
            return packed_answer(answer, texts, self._most_bytes)

        return await self._packed(caller, size, pack)

    async def relayed(self, caller: str, relayed: Relayed, form: Form) -> tuple[Json, int | None]:
        """The same for a result that somebody else made."""
        result: Json = {"content": [*relayed.content]}
        if relayed.structured is not None:
            result["structuredContent"] = relayed.structured
        if relayed.is_error:
            result["isError"] = True
        size = rough_size(result)
        if size < LARGE_CHARACTERS or form == "plain":
            return result, None
        return await self._packed(caller, size, lambda: packed_result(result, self._most_bytes))

    def _texts(self, tool: ToolSpec, answer: Json) -> list[Json]:
        texts = tool.text(answer)
        if sum(map(len, texts)) > self._most_bytes:
            raise ResponseTooLarge(
                f"the answer has more than {self._most_bytes} characters", hint="ask for a smaller part"
            )
        return [{"type": "text", "text": text} for text in texts]

    async def _packed(self, caller: str, size: int, pack: Callable[[], Json]) -> tuple[Json, int]:
        held = await self._in_flight.acquire(caller, 2 * size)
        try:
            result = await in_json_thread(pack)
        except BaseException:
            held.release()
            raise
        parts = [value for value in result.values() if isinstance(value, Packed)]
        packed_bytes = sum(part.size for part in parts)
        held.resize(packed_bytes)
        held.release_with(parts)
        return result, packed_bytes
