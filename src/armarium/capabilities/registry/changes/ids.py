"""Ids as callers know them: the project's prefix, what it is of, and chance."""

from __future__ import annotations

import secrets

import orjson

from armarium.capabilities.registry.storage.database import Writer

_BYTES = 5
_ISSUE_BYTES = 3


class Ids:
    """Makes ids that nothing of the registry has yet."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def file(self, writer: Writer) -> str:
        """An id for a file."""
        return self._free(writer, "taken_file_ids", "f-", _BYTES, 1)[0]

    def findings(self, writer: Writer, count: int) -> list[str]:
        """Ids for findings."""
        return self._free(writer, "taken_finding_ids", "sf-", _BYTES, count)

    def issue(self, writer: Writer) -> str:
        """An id for an issue, as short as people like to say it."""
        return self._free(writer, "taken_issue_ids", "", _ISSUE_BYTES, 1)[0]

    def scan_run(self) -> str:
        """An id for one run of a scanner."""
        return f"{self._prefix}-run-{secrets.token_hex(8)}"

    def _free(self, writer: Writer, taken: str, kind: str, size: int, count: int) -> list[str]:
        free: dict[str, None] = {}
        while len(free) < count:
            wanted = range(count - len(free))
            candidates = {f"{self._prefix}-{kind}{secrets.token_hex(size)}": None for _ in wanted}
            used = {row[0] for row in writer.rows(taken, (orjson.dumps(list(candidates)).decode(),))}
            free |= {each: None for each in candidates if each not in used}
            size += bool(used)
        return list(free)
