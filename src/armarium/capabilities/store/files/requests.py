"""Idempotent requests: a change with a request id is made once, however often it is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from armarium.capabilities.store.database.pool import Connection
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import InvalidQuery
from armarium.capabilities.store.model import Scope
from armarium.foundation.sql import queries

MAX_REQUEST_ID_LENGTH: Final = 128
_SQL = queries("armarium.capabilities.store.database.sql", "requests.sql")

Answer = dict[str, int]
"""The result of a change: numbers by name."""
Change = Callable[[Connection], Awaitable[Answer]]
"""Makes a change in a transaction that holds the project's lock."""


@dataclass(frozen=True, slots=True)
class Request:
    """A change that a caller requested with an id."""

    id: str
    digest: str
    """Hash of the tool and its arguments. The same id with another digest is an error."""


def request_of(request_id: str | None, tool: str, arguments: Mapping[str, Any]) -> Request | None:
    """The request with this id, or None without an id."""
    if request_id is None:
        return None
    if not 1 <= len(request_id) <= MAX_REQUEST_ID_LENGTH:
        raise InvalidQuery(f"request_id has 1 to {MAX_REQUEST_ID_LENGTH} characters")
    if not (request_id.isascii() and request_id.isprintable()):
        raise InvalidQuery("request_id may contain only printable ASCII characters", hint="use a UUID")
    # Not orjson, which does not support integers beyond 64 bits.
    asked = json.dumps([tool, {**arguments}], sort_keys=True)
    return Request(request_id, hashlib.sha256(asked.encode()).hexdigest())


class IdempotentRequests:
    """Stores requests and their results for at least a day (see `maintenance`)."""

    def __init__(self, database: StoreDatabase) -> None:
        self._database = database

    async def run_once(self, scope: Scope, request: Request | None, change: Change) -> tuple[Answer, bool]:
        """Make a change under the project's lock, unless a request with the same id already made it. Returns the result
        and whether it is that of the earlier request. Refused changes are not stored, so they can be retried."""
        async with self._database.project_transaction(scope) as connection:
            where = (scope.apikey_hash, scope.project)
            if request is not None:
                earlier = await connection.fetchrow(_SQL["earlier_request"], *where, request.id)
                if earlier is not None:
                    return _same(earlier, request), True
            answer = await change(connection)
            if request is not None:
                kept = (request.id, request.digest, orjson.dumps(answer).decode())
                await connection.execute(_SQL["remember_request"], *where, *kept)
            return answer, False


def _same(earlier: Mapping[str, Any], request: Request) -> Answer:
    if earlier["digest"] != request.digest:
        raise InvalidQuery(
            "this request_id was used for another change", hint="use a new one for each change", request_id=request.id
        )
    return orjson.loads(earlier["answer"])
