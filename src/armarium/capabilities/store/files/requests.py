"""Idempotent requests: a change with a request id is made once, however often it is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import orjson

from armarium.capabilities.store.arguments import Repeatable
from armarium.capabilities.store.database.pool import Connection
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import InvalidQuery
from armarium.capabilities.store.model import Scope
from armarium.foundation.sql import queries

MAX_REQUEST_ID_LENGTH: Final = 128
_NOT_IN_DIGEST = {"project", "request_id", "content_encoding"}
_SQL = queries("armarium.capabilities.store.database.sql", "requests.sql")

AnswerT = TypeVar("AnswerT", bound=Mapping[str, object])


@dataclass(frozen=True, slots=True)
class Request:
    """A change that a caller requested with an id."""

    id: str
    digest: str
    """Hash of the tool and its arguments. The same id with another digest is an error."""


def request_of(tool: str, args: Repeatable) -> Request | None:
    """The request with the id in the arguments, or None without an id."""
    if args.request_id is None:
        return None
    if not 1 <= len(args.request_id) <= MAX_REQUEST_ID_LENGTH:
        raise InvalidQuery(f"request_id has 1 to {MAX_REQUEST_ID_LENGTH} characters")
    if not (args.request_id.isascii() and args.request_id.isprintable()):
        raise InvalidQuery("request_id may contain only printable ASCII characters", hint="use a UUID")
    # Not orjson, which does not support integers beyond 64 bits.
    asked = json.dumps([tool, args.model_dump(exclude=_NOT_IN_DIGEST)], sort_keys=True)
    return Request(args.request_id, hashlib.sha256(asked.encode()).hexdigest())


async def run_once(
    database: StoreDatabase, scope: Scope, request: Request | None, change: Callable[[Connection], Awaitable[AnswerT]]
) -> tuple[AnswerT, bool]:
    """Make a change under the project's lock, unless a request with the same id already made it. Returns the result
    and whether it is that of the earlier request. Requests are stored for at least a day (see `maintenance`); refused
    ones are not, so they can be retried."""
    async with database.project_transaction(scope) as connection:
        if request is None:
            return await change(connection), False
        earlier = await connection.fetchrow(_SQL["earlier_request"], *scope, request.id)
        if earlier is not None:
            if earlier["digest"] != request.digest:
                hint = "use a new one for each change"
                raise InvalidQuery("this request_id was used for another change", hint=hint, request_id=request.id)
            return orjson.loads(earlier["answer"]), True
        answer = await change(connection)
        kept = (request.id, request.digest, orjson.dumps(answer).decode())
        await connection.execute(_SQL["remember_request"], *scope, *kept)
        return answer, False
