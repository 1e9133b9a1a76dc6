"""Encodes large results as JSON in pieces, so that other threads and the sender can run in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import orjson

from armarium.foundation.errors import ResponseTooLarge
from armarium.foundation.schema import Json
from armarium.surfaces.json.text import dumps, encode

LARGE_CHARACTERS = 512 * 1024
"""The size from which a result is encoded in a thread. Below it, the thread costs more than it saves."""

PIECE_BYTES = 256 * 1024
_FULLY_MEASURED = 256
_SAMPLED = 64
_NODE_CHARACTERS = 8
"""The estimated size of punctuation, numbers and constants per value."""


class EncodedJson:
    """JSON in pieces. Several values may share a piece: a text that a result repeats is in memory once."""

    __slots__ = ("__weakref__", "pieces", "size")

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.size = sum(map(len, pieces))


def estimate_size(value: object) -> int:
    """Estimate how many characters a value has as JSON. Long lists are sampled."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        members = cast(Json, value)
        return _NODE_CHARACTERS * len(members) + sum(map(len, members)) + _estimate_sum(members.values())
    if isinstance(value, list):
        items = cast(list[object], value)
        return _NODE_CHARACTERS * len(items) + _estimate_sum(items)
    return _NODE_CHARACTERS


def _estimate_sum(values: Iterable[object]) -> int:
    known = list(values)
    if len(known) <= _FULLY_MEASURED:
        return sum(map(estimate_size, known))
    samples = known[:: len(known) // _SAMPLED]
    return sum(map(estimate_size, samples)) * len(known) // len(samples)


def encode_answer(answer: Json, texts: Sequence[str] | None, max_bytes: int) -> Json:
    """Encode an answer as an MCP result; raises `ResponseTooLarge`. Without `texts`, the text content is the JSON of
    the answer."""
    writer = _Writer(max_bytes)
    structured = writer.encoded(answer)
    if texts is not None:
        content = writer.encoded([{"type": "text", "text": text} for text in texts])
    else:
        writer.put(b'[{"type":"text","text":"')
        for piece in structured.pieces:
            writer.put(dumps(piece.decode())[1:-1])
        writer.put(b'"}]')
        content = writer.written()
    return {"content": content, "structuredContent": structured}


def encode_result(result: Json, max_bytes: int) -> Json:
    """Encode the large parts of an MCP result; raises `ResponseTooLarge`."""
    writer = _Writer(max_bytes)
    parts = {name: writer.encoded(result[name]) for name in ("content", "structuredContent") if name in result}
    return {**result, **parts}


def encode_value(value: Json, max_bytes: int) -> EncodedJson:
    """Encode any JSON value; raises `ResponseTooLarge`."""
    return _Writer(max_bytes).encoded(value)


def encode_message(message: Json, *, newline: bool = False) -> list[bytes]:
    """Encode a JSON-RPC message: in one piece, unless parts of its result are encoded already."""
    members = cast(Json, result) if isinstance(result := cast(object, message.get("result")), dict) else {}
    if not any(isinstance(value, EncodedJson) for value in members.values()):
        return [encode(message, newline=newline)]
    envelope = {name: value for name, value in message.items() if name != "result"}
    pieces = [encode(envelope)[:-1] + b',"result":{']
    for number, (name, value) in enumerate(members.items()):
        pieces[-1] += (b"," if number else b"") + orjson.dumps(name) + b":"
        if isinstance(value, EncodedJson):
            pieces += [*value.pieces, b""]
        else:
            pieces[-1] += dumps(value)
    pieces[-1] += b"}}\n" if newline else b"}}"
    return pieces


class _Writer:
    """Encodes the parts of one result, in pieces of similar size. Other threads can take the interpreter lock between
    two pieces."""

    def __init__(self, max_bytes: int) -> None:
        self._max = self._left = max_bytes
        self._pieces: list[bytes] = []
        self._short: list[bytes] = []
        self._short_bytes = 0
        self._long_texts: dict[int, list[bytes]] = {}
        """The pieces of long texts by the id() of the string, which the result keeps alive."""

    def encoded(self, value: object) -> EncodedJson:
        """Encode a part of the result."""
        self._write(value)
        return self.written()

    def written(self) -> EncodedJson:
        """What was written since the last part."""
        self._flush()
        pieces, self._pieces = self._pieces, []
        return EncodedJson(pieces)

    def put(self, data: bytes) -> None:
        """Write encoded JSON."""
        self._take(len(data))
        if len(data) >= PIECE_BYTES:
            self._flush()
            self._pieces.append(data)
            return
        self._short.append(data)
        self._short_bytes += len(data)
        if self._short_bytes >= PIECE_BYTES:
            self._flush()

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ResponseTooLarge(
                f"the answer has more than {self._max} bytes as JSON",
                hint="ask for a smaller part: fewer files, fewer results, or a range",
                limit=self._max,
            )

    def _write(self, value: object) -> None:
        if isinstance(value, str):
            self._write_text(value)
        elif isinstance(value, dict):
            self._write_object(cast(Json, value))
        elif isinstance(value, list):
            self._write_list(cast(list[object], value))
        else:
            self.put(dumps(value))

    def _write_text(self, text: str) -> None:
        if len(text) < PIECE_BYTES:
            self.put(dumps(text))
            return
        parts = self._long_texts.get(id(text))
        if parts is None:
            parts = self._long_texts[id(text)] = []
            for start in range(0, len(text), PIECE_BYTES):
                part = dumps(text[start : start + PIECE_BYTES])[1:-1]
                self._take(len(part))
                parts.append(part)
        else:
            self._take(sum(map(len, parts)))
        self.put(b'"')
        self._flush()
        self._pieces += parts
        self.put(b'"')

    def _write_object(self, members: Json) -> None:
        separator = b"{"
        for name, value in members.items():
            self.put(separator + dumps(name) + b":")
            self._write(value)
            separator = b","
        self.put(b"}" if members else b"{}")

    def _write_list(self, items: list[object]) -> None:
        """Write a list in batches, sized by the bytes of the previous batch: no item needs to be measured."""
        separator, batch_size = b"[", 1
        position = 0
        while position < len(items):
            batch = items[position : position + batch_size]
            position += len(batch)
            self.put(separator)
            separator = b","
            before = self._left
            if len(batch) == 1:
                self._write(batch[0])
            else:
                self.put(dumps(batch)[1:-1])
            size = before - self._left
            batch_size = batch_size * 2 if size < PIECE_BYTES // 2 else max(1, batch_size // 2)
        self.put(b"]" if items else b"[]")

    def _flush(self) -> None:
        if self._short:
            self._pieces.append(b"".join(self._short))
            self._short.clear()
            self._short_bytes = 0
