"""What all addresses of the API have in common: refusals in plain JSON, no body for HEAD, headers for browsers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from starlette.types import Message, Receive, Scope, Send

from armarium.foundation.schema import Json
from armarium.surfaces.gate import Gate
from armarium.surfaces.http_errors import Refused

_CODES = {
    400: "BAD_REQUEST",
    402: "PAYMENT_REQUIRED",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    408: "REQUEST_TIMEOUT",
    413: "PAYLOAD_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    503: "UNAVAILABLE",
}
_ALWAYS_SAID = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class Answering(ABC):
    """An address; `answer` says what there is, or raises `Refused`."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        cautious = _cautious(send, with_body=scope["method"] != "HEAD")
        try:
            await self.answer(scope, receive, cautious)
        except Refused as refusal:
            await self.gate.turn_away(refusal, scope, cautious, in_plain_json)

    @abstractmethod
    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""


def in_plain_json(refusal: Refused) -> Json:
    """A refusal in the form the API has for what never became a call."""
    code = refusal.reason or _CODES.get(refusal.status, "REFUSED")
    return {"error": refusal.message, "code": code, **refusal.details}


def wrong_method(allowed: Iterable[str]) -> Refused:
    """The refusal of a method that an address does not have."""
    listed = ", ".join(sorted(allowed))
    return Refused(405, f"use {listed}", {"allow": listed})


def _cautious(send: Send, *, with_body: bool) -> Send:
    async def say(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *_ALWAYS_SAID]}
        elif not with_body:
            message = {**message, "body": b""}
        await send(message)

    return say
