"""The message format between server and workers: length-prefixed JSON, which cannot carry code, and its outcomes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson

from armarium.capabilities.corpus.errors import ExtractFailed
from armarium.capabilities.corpus.files.discover import MEMBER_MARK
from armarium.capabilities.corpus.storage.prepared import (
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


class InvalidMessage(Exception):
    """A message that a correct worker never sends. The worker is not trusted any further."""


def encode_frame(message: Any) -> bytes:
    """A message with its length prefix. Raises `TypeError` for text that is not valid Unicode."""
    body = orjson.dumps(message)
    return LENGTH.pack(len(body)) + body


def read_frame(read: Callable[[int], bytes], max_bytes: int) -> bytes:
    """The body of the next message. `read` returns exactly as many bytes as requested, or raises."""
    (length,) = LENGTH.unpack(read(LENGTH.size))
    if length > max_bytes:
        raise InvalidMessage(f"a message of {length} bytes")
    return read(length)


def decode_frame(body: bytes) -> Any:
    """The content of a message. Raises `InvalidMessage` if it is not JSON."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidMessage("a message that is not JSON") from error


def encode_outcome(outcome: Outcome) -> bytes:
    """An outcome as a message to the server. Text that JSON cannot represent becomes an error of that document."""
    match outcome:
        case Prepared():
            try:
                return encode_frame(_document(outcome))
            except TypeError:
                error = f"{ExtractFailed.code}: the text of the document is not Unicode"
                empty = replace(outcome, content_hash="", status="error", error=error, representations=())
                return encode_frame(_document(empty))
        case Refused(shown_path, code, reason):
            return encode_frame([REFUSED, shown_path.partition(MEMBER_MARK)[2], code, reason])
        case Unchanged():
            return encode_frame([UNCHANGED])
        case Vanished():
            return encode_frame([VANISHED])
        case Finished():
            return encode_frame([FINISHED])


def _document(prepared: Prepared) -> list[Any]:
    """A document's fields. Path, size and time are sent only for members: the server knows those of the file."""
    member = None
    if prepared.container is not None:
        member = [prepared.rel_path[len(prepared.container + MEMBER_MARK) :], prepared.size_bytes, prepared.mtime_ns]
    return [
        PREPARED,
        member,
        prepared.doc_type,
        prepared.content_hash,
        prepared.status,
        " ".join(prepared.error.split())[:_LONGEST_ERROR] if prepared.error is not None else None,
        [_representation(each) for each in prepared.representations],
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
