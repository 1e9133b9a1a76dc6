"""Capability tokens: signed, short-lived leave for one caller to use some sources of one server, and nothing else."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson

from armarium.capabilities.gateway.refusals import TokenExpired, UnauthorizedSource

_VERSION: Final = "arc1"
_LONGEST = 16_384
_NOT_OURS = "the capability token is not one that was issued for this"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token allows."""

    server: str
    username: str
    sources: tuple[str, ...]
    expires_at: int
    """Seconds since 1970."""


class CapabilityTokens:
    """Issues tokens, those of each server signed with that server's own key."""

    def __init__(
        self, secret: bytes | None = None, *, ttl_s: int = 300, clock: Callable[[], float] = time.time
    ) -> None:
        self.is_shared = secret is not None
        """Whether anybody else can verify what is issued here."""
        self._secret = secret or secrets.token_bytes(32)
        self._ttl_s = ttl_s
        self._clock = clock

    def issue(self, server: str, username: str, sources: Sequence[str], *, ttl_s: int | None = None) -> tuple[str, int]:
        """A token for these sources of a server, and until when it is good; never longer than the settings allow."""
        expires_at = int(self._clock()) + min(ttl_s or self._ttl_s, self._ttl_s)
        claims = orjson.dumps({"aud": server, "sub": username, "src": sorted(set(sources)), "exp": expires_at})
        body = f"{_VERSION}.{_encoded(claims)}"
        return f"{body}.{_signature(server_key(self._secret, server), body)}", expires_at


class CapabilityVerifier:
    """Verifies tokens as one server does, which has its own key and nobody else's."""

    def __init__(self, server: str, key: str, *, clock: Callable[[], float] = time.time) -> None:
        self._server = server
        self._key = key
        self._clock = clock

    def verify(self, token: str, username: str, sources: Sequence[str]) -> Grant:
        """What the token allows, if it is ours, still good, this caller's, and for all of these sources."""
        body, _, signature = token.rpartition(".")
        # The signature comes first: nothing that somebody else wrote is looked at any further.
        if len(token) > _LONGEST or not hmac.compare_digest(_signature(self._key, body).encode(), _bytes(signature)):
            raise TokenExpired(_NOT_OURS, hint="ask for a new token")
        grant = _grant(body)
        if grant.expires_at <= self._clock():
            raise TokenExpired("the capability token has expired", hint="ask for a new token")
        if grant.server != self._server:
            raise UnauthorizedSource(
                f"the capability token is for the server {grant.server!r}, and this one is {self._server!r}",
                hint="the server has to know the name that the gateway has for it",
            )
        if grant.username != username or not set(sources) <= set(grant.sources):
            raise UnauthorizedSource("the capability token is for somebody or something else", hint="ask for your own")
        return grant


def server_key(secret: bytes, server: str) -> str:
    """The key of one server. Whoever has it can neither find the secret nor the key of another server by it."""
    return hmac.new(secret, server.encode(), hashlib.sha256).hexdigest()


def _signature(key: str, body: str) -> str:
    return _encoded(hmac.new(key.encode(), _bytes(body), hashlib.sha256).digest())


def _grant(body: str) -> Grant:
    version, _, encoded = body.partition(".")
    try:
        claims = cast("dict[str, Any]", orjson.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))))
        sources = tuple(str(each) for each in claims["src"])
        grant = Grant(str(claims["aud"]), str(claims["sub"]), sources, int(claims["exp"]))
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise TokenExpired(_NOT_OURS, hint="ask for a new token") from error
    if version != _VERSION:
        raise TokenExpired(_NOT_OURS, hint="ask for a new token")
    return grant


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
