"""Messages between the server and its worker processes: a length, then JSON, which cannot carry code."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import orjson

LENGTH = struct.Struct("<I")


class UnusableFrame(Exception):
    """A message that is too long, or not JSON."""


def framed(message: Any) -> bytes:
    """A message as it goes through a pipe; `TypeError` for text that is not Unicode."""
    body = orjson.dumps(message)
    return LENGTH.pack(len(body)) + body


def read_frame(read: Callable[[int], bytes], max_bytes: int) -> bytes:
    """The body of the next message; `read` gives exactly as many bytes as it is asked for, or raises."""
    (length,) = LENGTH.unpack(read(LENGTH.size))
    if length > max_bytes:
        raise UnusableFrame(f"a message of {length} bytes")
    return read(length)


def parsed(body: bytes) -> Any:
    """What a message says; `UnusableFrame` when it is not JSON."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UnusableFrame("a message that is not JSON") from error
