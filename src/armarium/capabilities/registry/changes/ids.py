"""Generates public ids: the project's prefix, a kind, and random digits."""

from __future__ import annotations

import secrets
from typing import Literal

import orjson

from armarium.capabilities.registry.storage.database import Writer

_KINDS = {"file": ("f-", 5), "finding": ("sf-", 5), "issue": ("", 3)}
"""What follows the prefix, and the number of random bytes. The id of an issue is short enough to say aloud."""


class Ids:
    """Generates ids that are not in use."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def new(self, writer: Writer, kind: Literal["file", "finding", "issue"], count: int = 1) -> list[str]:
        mark, size = _KINDS[kind]
        free: dict[str, None] = {}
        while len(free) < count:
            wanted = range(count - len(free))
            candidates = {f"{self._prefix}-{mark}{secrets.token_hex(size)}": None for _ in wanted}
            used = {row[0] for row in writer.rows(f"taken_{kind}_ids", (orjson.dumps(list(candidates)).decode(),))}
            free |= {each: None for each in candidates if each not in used}
            size += bool(used)
        return list(free)

    def judgement(self) -> str:
        return f"{self._prefix}-j-{secrets.token_hex(8)}"

    def scan_run(self) -> str:
        return f"{self._prefix}-run-{secrets.token_hex(8)}"
