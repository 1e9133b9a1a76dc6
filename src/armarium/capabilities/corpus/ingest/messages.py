"""The message format between server and workers: length-prefixed JSON, which cannot carry code, and its outcomes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import orjson

from armarium.capabilities.corpus.errors import ExtractFailed
from armarium.capabilities.corpus.files.paths import MEMBER_MARK
from armarium.capabilities.corpus.prepared import (
    Finished,
    Outcome,
    Prepared,
    Refused,
    Representation,
    Unchanged,
    Vanished,
)

_LONGEST_ERROR = 500

PREPARED, UNCHANGED, VANISHED, REFUSED, FINISHED = "prepared", "unchanged", "vanished", "refused", "finished"

LENGTH = struct.Struct("<I")


class InvalidFrame(Exception):
    """A message that is too long or not JSON."""


def encode_frame(message: Any) -> bytes:
    """A message with its length prefix. Raises `TypeError` for text that is not valid Unicode."""
    body = orjson.dumps(message)
    return LENGTH.pack(len(body)) + body


def read_frame(read: Callable[[int], bytes], max_bytes: int) -> bytes:
    """The body of the next message. `read` returns exactly as many bytes as requested, or raises."""
    (length,) = LENGTH.unpack(read(LENGTH.size))
    if length > max_bytes:
        raise InvalidFrame(f"a message of {length} bytes")
    return read(length)


def decode_frame(body: bytes) -> Any:
    """The content of a message. Raises `InvalidFrame` if it is not JSON."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidFrame("a message that is not JSON") from error


def encode_outcome(outcome: Outcome) -> bytes:
    """An outcome as a message to the server. Text that JSON cannot represent becomes an error of that document."""
    try:
        return encode_frame(_as_json(outcome))
    except TypeError:
        if not isinstance(outcome, Prepared):
            raise
        error = f"{ExtractFailed.code}: the text of the document is not Unicode"
        return encode_frame(_document(outcome, "error", error, with_text=False))


def _as_json(outcome: Outcome) -> list[Any]:
    match outcome:
        case Prepared():
            return _document(outcome, outcome.status, outcome.error, with_text=True)
        case Unchanged():
            return [UNCHANGED]
        case Vanished():
            return [VANISHED]
        case Refused(shown_path, code, reason):
            return [REFUSED, _member(shown_path), code, reason]
        case Finished():
            return [FINISHED]


def _document(prepared: Prepared, status: str, error: str | None, *, with_text: bool) -> list[Any]:
    """A document's fields. Path, size and time are sent only for members: the server knows those of the file."""
    member = None
    if prepared.container is not None:
        member = [prepared.rel_path[len(prepared.container + MEMBER_MARK) :], prepared.size_bytes, prepared.mtime_ns]
    return [
        PREPARED,
        member,
        prepared.doc_type,
        prepared.content_hash if with_text else "",
        status,
        " ".join(error.split())[:_LONGEST_ERROR] if error is not None else None,
        [_representation(each) for each in prepared.representations] if with_text else [],
        [[secret.rule, secret.line, secret.digest] for secret in prepared.secrets],
    ]


def _representation(representation: Representation) -> list[Any]:
    """Chunks are sent by column: validating a column is much cheaper than validating as many rows."""
    meta = representation.meta
    columns = [list(column) for column in zip(*representation.chunks, strict=True)] or [[]] * 7
    texts, contexts, _, index_kinds, span_kinds, starts, ends = columns
    return [
        representation.rep_type,
        representation.rep_hash,
        meta["format"],
        meta["title"],
        meta.get("page_starts"),
        representation.content,
        [texts, contexts, index_kinds, span_kinds, starts, ends],
    ]


def _member(shown_path: str) -> str:
    return shown_path.partition(MEMBER_MARK)[2]
