"""Large answers as JSON, encoded in a thread, in pieces that other threads and the sender can come between."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import orjson

from armarium.foundation.errors import ResponseTooLarge
from armarium.foundation.schema import Json
from armarium.surfaces.json_text import encoded, without_half_characters

LARGE_CHARACTERS = 512 * 1024
"""Answers from about this size on are packed: below, a thread costs more than it saves."""

_PIECE_BYTES = 256 * 1024
_FULLY_LOOKED_AT = 256
_SAMPLED = 64
_NODE_CHARACTERS = 8
"""About what punctuation, numbers and the like take for each value."""


class Packed:
    """JSON in pieces. A piece may be part of several values: a text that an answer repeats is held once."""

    __slots__ = ("__weakref__", "pieces", "size")

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.size = sum(map(len, pieces))


def rough_size(value: object) -> int:
    """About how many characters a value has as JSON. Of long lists only samples are looked at."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        members = cast(Json, value)
        return _NODE_CHARACTERS * len(members) + sum(map(len, members)) + _rough_sum(members.values())
    if isinstance(value, list):
        items = cast(list[object], value)
        return _NODE_CHARACTERS * len(items) + _rough_sum(items)
    return _NODE_CHARACTERS


def _rough_sum(values: Iterable[object]) -> int:
    known = list(values)
    if len(known) <= _FULLY_LOOKED_AT:
        return sum(map(rough_size, known))
    samples = known[:: len(known) // _SAMPLED]
    return sum(map(rough_size, samples)) * len(known) // len(samples)


def packed_answer(answer: Json, texts: Sequence[str] | None, most_bytes: int) -> Json:
    """The result of a call with this answer, in MCP's form; raises `ResponseTooLarge`.

    Without `texts`, the only text is the answer's own JSON.
    """
    room = _Room(most_bytes)
    writer = _Writer(room)
    writer.write(answer)
    structured = Packed(writer.pieces())
    content = _Writer(room, writer.long_texts)
    if texts is None:
        content.put(b'[{"type":"text","text":"')
        for piece in structured.pieces:
            content.put(_dumps(piece.decode())[1:-1])
        content.put(b'"}]')
    else:
        content.write([{"type": "text", "text": text} for text in texts])
    return {"content": Packed(content.pieces()), "structuredContent": structured}


def packed_result(result: Json, most_bytes: int) -> Json:
    """A result that is in MCP's form already, with its large parts packed; raises `ResponseTooLarge`."""
    room = _Room(most_bytes)
    parts = {name: _packed(result[name], room) for name in ("content", "structuredContent") if name in result}
    return {**result, **parts}


def packed_value(value: Json, most_bytes: int) -> Packed:
    """Any JSON; raises `ResponseTooLarge`."""
    return _packed(value, _Room(most_bytes))


def packed_size(result: Json) -> int:
    """How many bytes of JSON the packed parts of a result hold."""
    return sum(value.size for value in result.values() if isinstance(value, Packed))


def pieces_of(message: Json, *, newline: bool = False) -> list[bytes]:
    """A message as JSON: in one piece, unless its result is packed."""
    result: object = message.get("result")
    if not isinstance(result, dict):
        return [encoded(message, newline=newline)]
    members = cast(Json, result)
    if not any(isinstance(value, Packed) for value in members.values()):
        return [encoded(message, newline=newline)]
    envelope = {name: value for name, value in message.items() if name != "result"}
    pieces = [encoded(envelope)[:-1] + b',"result":{']
    for number, (name, value) in enumerate(members.items()):
        pieces[-1] += (b"," if number else b"") + orjson.dumps(name) + b":"
        if isinstance(value, Packed):
            pieces += [*value.pieces, b""]
        else:
            pieces[-1] += _dumps(value)
    pieces[-1] += b"}}\n" if newline else b"}}"
    return pieces


def _packed(value: object, room: _Room) -> Packed:
    writer = _Writer(room)
    writer.write(value)
    return Packed(writer.pieces())


class _Room:
    """How much may still be written."""

    def __init__(self, most_bytes: int) -> None:
        self._most = self.left = most_bytes

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise ResponseTooLarge(
                f"the answer has more than {self._most} bytes as JSON",
                hint="ask for a smaller part: fewer files, fewer results, or a range",
                limit=self._most,
            )


class _Writer:
    """Collects pieces of a fair size. Between them the interpreter's lock is free, which a single encoding never is."""

    def __init__(self, room: _Room, long_texts: dict[int, list[bytes]] | None = None) -> None:
        self._room = room
        self._pieces: list[bytes] = []
        self._short: list[bytes] = []
        self._short_bytes = 0
        self.long_texts: dict[int, list[bytes]] = {} if long_texts is None else long_texts
        """Texts that are in pieces already, by the identity of the string: the answer keeps it alive."""

    def put(self, data: bytes) -> None:
        """Write what is JSON already."""
        self._room.take(len(data))
        if len(data) >= _PIECE_BYTES:
            self._flush()
            self._pieces.append(data)
            return
        self._short.append(data)
        self._short_bytes += len(data)
        if self._short_bytes >= _PIECE_BYTES:
            self._flush()

    def pieces(self) -> list[bytes]:
        """Everything that was written."""
        self._flush()
        return self._pieces

    def write(self, value: object) -> None:
        """Write any JSON value."""
        if isinstance(value, str):
            self._write_text(value)
        elif isinstance(value, dict):
            self._write_object(cast(Json, value))
        elif isinstance(value, list):
            self._write_list(cast(list[object], value))
        else:
            self.put(_dumps(value))

    def _write_text(self, text: str) -> None:
        if len(text) < _PIECE_BYTES:
            self.put(_dumps(text))
            return
        parts = self.long_texts.get(id(text))
        if parts is None:
            parts = self.long_texts[id(text)] = []
            for part in _text_parts(text):
                self._room.take(len(part))
                parts.append(part)
        else:
            self._room.take(sum(map(len, parts)))
        self.put(b'"')
        self._flush()
        self._pieces += parts
        self.put(b'"')

    def _write_object(self, members: Json) -> None:
        separator = b"{"
        for name, value in members.items():
            self.put(separator + _dumps(name) + b":")
            self.write(value)
            separator = b","
        self.put(b"}" if members else b"{}")

    def _write_list(self, items: list[object]) -> None:
        """In batches that grow until they give pieces of a fair size: nobody has to look at each item for that."""
        separator, batch_size = b"[", 1
        position = 0
        while position < len(items):
            batch = items[position : position + batch_size]
            position += len(batch)
            self.put(separator)
            separator = b","
            before = self._room.left
            if len(batch) == 1:
                self.write(batch[0])
            else:
                self.put(_dumps(batch)[1:-1])
            size = before - self._room.left
            batch_size = batch_size * 2 if size < _PIECE_BYTES // 2 else max(1, batch_size // 2)
        self.put(b"]" if items else b"[]")

    def _flush(self) -> None:
        if self._short:
            self._pieces.append(b"".join(self._short))
            self._short.clear()
            self._short_bytes = 0


def _text_parts(text: str) -> Iterator[bytes]:
    for start in range(0, len(text), _PIECE_BYTES):
        yield _dumps(text[start : start + _PIECE_BYTES])[1:-1]


def _dumps(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        whole = without_half_characters(value)
    try:
        return orjson.dumps(whole)
    except TypeError:
        # Whole numbers may be of any size.
        return json.dumps(whole, ensure_ascii=False, default=str).encode()
