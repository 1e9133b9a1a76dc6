"""Messages between the server and its worker processes, as they go through a pipe."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any

READY = "ready"
"""What a worker says before it takes its first file."""

_LENGTH = struct.Struct("<Q")


def framed(message: Any) -> bytes:
    """A message as it goes through a pipe: its length, then itself."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


def unframed(read: Callable[[int], bytes]) -> Any:
    """The next message; `read` gives exactly as many bytes as it is asked for, or raises."""
    (length,) = _LENGTH.unpack(read(_LENGTH.size))
    # Both ends of the pipe are this program.
    return pickle.loads(read(length))  # noqa: S301
