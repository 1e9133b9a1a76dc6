"""Capability tokens: short-lived JWTs that allow one user to use some sources of one server."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import jwt
import orjson
from pydantic import SecretStr

from armarium.capabilities.gateway.config.entries import SERVER_NAME
from armarium.capabilities.gateway.config.files import BUILT_IN_SERVER
from armarium.capabilities.gateway.errors import TokenExpired, UnauthorizedSource
from armarium.foundation.errors import ConfigError, InvalidArgument

ALGORITHM: Final = "HS256"
_MAX_LENGTH = 16_384
_LEGACY_PREFIX: Final = "arc1."
_RENEW_HINT = "request a new token"


class CapabilityTokens:
    """Issues tokens. Each server has its own signing key, derived from one secret."""

    def __init__(
        self, secret: SecretStr | bytes | None = None, *, ttl_s: int = 300, clock: Callable[[], float] = time.time
    ) -> None:
        self.is_shared = bool(secret)
        """Whether servers can verify the tokens. Without a configured secret, only this process knows the keys."""
        self._secret = secret or secrets.token_bytes(32)
        self._ttl_s = ttl_s
        self._clock = clock

    def issue(self, server: str, username: str, sources: Sequence[str], *, ttl_s: int | None = None) -> tuple[str, int]:
        """A token for these sources of a server, and when it expires. `ttl_s` cannot exceed the configured maximum."""
        expires_at = int(self._clock()) + min(ttl_s or self._ttl_s, self._ttl_s)
        claims = {"aud": server, "sub": username, "src": sorted(set(sources)), "exp": expires_at}
        secret = self._secret if isinstance(self._secret, bytes) else self._secret.get_secret_value().encode()
        return jwt.encode(claims, server_key(secret, server), ALGORITHM), expires_at


class CapabilityVerifier:
    """Verifies tokens as one server does, with that server's key only."""

    def __init__(self, server: str, key: str, *, clock: Callable[[], float] = time.time) -> None:
        self._server = server
        self._key = key
        self._clock = clock

    def verify(self, token: str, username: str, sources: Sequence[str]) -> None:
        """Raise unless the token is valid, not expired, and covers this user and all sources."""
        claims = self._claims(token)
        try:
            server, owner, expires_at = str(claims["aud"]), str(claims["sub"]), int(claims["exp"])
            allowed = {str(each) for each in claims["src"]}
        except (ValueError, KeyError, TypeError) as error:
            raise _invalid() from error
        if expires_at <= self._clock():
            raise TokenExpired("the capability token has expired", hint=_RENEW_HINT)
        if server != self._server:
            raise UnauthorizedSource(
                f"the capability token is for the server {server!r}, but this server is {self._server!r}",
                hint="configure the server with the name that the gateway uses for it",
            )
        if owner != username or not set(sources) <= allowed:
            raise UnauthorizedSource(
                "the capability token is for another user or other sources", hint="request a token of your own"
            )

    def _claims(self, token: str) -> Mapping[str, Any]:
        if len(token) > _MAX_LENGTH:
            raise _invalid()
        if token.startswith(_LEGACY_PREFIX):
            return _legacy_claims(token, self._key)
        try:
            # Audience and expiry are checked above, with errors of the contract and the injected clock.
            unchecked = {"verify_aud": False, "verify_exp": False, "require": ["aud", "sub", "src", "exp"]}
            return jwt.decode(token, self._key, algorithms=[ALGORITHM], options=cast("Any", unchecked))
        except (jwt.InvalidTokenError, UnicodeEncodeError) as error:
            raise _invalid() from error


def server_key(secret: bytes, server: str) -> str:
    """The signing key of one server. It reveals neither the secret nor the key of another server."""
    return hmac.new(secret, server.encode(), hashlib.sha256).hexdigest()


def configured_server_key(secret: str | None, server: str) -> str:
    if not re.fullmatch(SERVER_NAME, server) or server == BUILT_IN_SERVER:
        raise InvalidArgument(
            f"{server[:80]!r} is not the name of a server", hint="as in rag-mcp.json: letters, digits, - and _"
        )
    if not secret:
        raise ConfigError(
            "there is no secret to derive keys from",
            hint="set gateway.tokens.secret, or ARMARIUM_GATEWAY__TOKENS__SECRET, to a long random string",
        )
    return server_key(secret.encode(), server)


def _invalid() -> TokenExpired:
    return TokenExpired("the capability token is invalid", hint=_RENEW_HINT)


# Deprecated: the token format `arc1.<claims>.<signature>` of release 0.1. Remove after one release with JWT.
def _legacy_claims(token: str, key: str) -> Mapping[str, Any]:
    body, _, signature = token.rpartition(".")
    digest = hmac.new(key.encode(), body.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
    expected = base64.urlsafe_b64encode(digest).rstrip(b"=")
    # The signature first: unsigned claims are not parsed.
    if not hmac.compare_digest(expected, signature.encode("utf-8", "surrogatepass")):
        raise _invalid()
    encoded = body.removeprefix(_LEGACY_PREFIX)
    try:
        return orjson.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except ValueError as error:
        raise _invalid() from error
