"""Stores callers' keys, encrypted and for minutes, between a write and its indexing."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar, cast

import anyio
from pydantic import SecretStr

from armarium.capabilities.store.errors import ResourceBusy
from armarium.capabilities.store.index.envelope import EnvelopeRejected, Keks
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.settings import SecuritySettings
from armarium.foundation.errors import ConfigError

_REFERENCE_BYTES = 16
_REDIS_TIMEOUT_S = 2.0

_Answer = TypeVar("_Answer")

_log = logging.getLogger(__name__)


class Credentials:
    """Passes a caller's key from a write to its index job, in an encrypted envelope in a cache. An envelope is bound to
    a tenant, a project and a reference."""

    def __init__(self, cache: MemoryCache | RedisCache, keks: Keks, *, ttl_s: float) -> None:
        self._cache = cache
        self._keks = keks
        self._ttl_s = ttl_s

    async def keep(self, key: str | None, scope: Scope) -> str | None:
        """Store the key for a job of this scope. Returns the reference to it, or None if there is nothing to store.

        Called before the write begins. If the key cannot be stored, the write fails with RESOURCE_BUSY and nothing is
        written: a file whose job has no key would never be searchable.
        """
        if key is None:
            return None
        reference = secrets.token_hex(_REFERENCE_BYTES)
        expires_at = datetime.now(UTC) + timedelta(seconds=self._ttl_s)
        await self._cache.put(reference, self._keks.seal(key, aad=_bound_to(scope, reference), expires_at=expires_at))
        return reference

    async def take(self, reference: str, scope: Scope) -> str | None:
        """The key, or None if it has expired or belongs to another scope. It stays stored until it is discarded."""
        envelope = await self._cache.get(reference)
        if envelope is None:
            return None
        try:
            return self._keks.open(envelope, aad=_bound_to(scope, reference))
        except EnvelopeRejected as error:
            _log.warning("a stored key cannot be used", extra={"code": error.code, "project": scope.project})
            return None

    async def discard(self, reference: str) -> None:
        """Remove a key that is no longer needed. Never fails: a key that cannot be removed expires."""
        try:
            await self._cache.remove(reference)
        except ResourceBusy as error:
            _log.warning("removing a used key failed; it is left to expire", extra={"code": error.code})


class MemoryCache:
    """A cache in this process: only its own workers find the keys of its writes."""

    def __init__(self, *, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._kept: dict[str, tuple[float, str]] = {}

    async def put(self, name: str, text: str) -> None:
        self._drop_expired()
        self._kept[name] = (self._clock() + self._ttl_s, text)

    async def get(self, name: str) -> str | None:
        self._drop_expired()
        return self._kept[name][1] if name in self._kept else None

    async def remove(self, name: str) -> None:
        self._kept.pop(name, None)

    def _drop_expired(self) -> None:
        now = self._clock()
        # All entries have the same lifetime, so the oldest come first.
        for name, (until, _) in list(self._kept.items()):
            if until > now:
                break
            del self._kept[name]


class _RedisClient(Protocol):
    """The part of the Redis client that we use; its own types do not distinguish the asynchronous client."""

    async def set(self, name: str, value: str, *, ex: int) -> Any: ...

    async def get(self, name: str) -> bytes | None: ...

    async def delete(self, name: str) -> Any: ...

    async def aclose(self) -> None: ...


class RedisCache:
    """A cache in Redis, shared by any number of servers and workers."""

    def __init__(self, client: _RedisClient, *, prefix: str, ttl_s: int) -> None:
        self._client = client
        self._prefix = prefix
        self._ttl_s = ttl_s

    async def put(self, name: str, text: str) -> None:
        await self._asked(self._client.set(f"{self._prefix}:{name}", text, ex=self._ttl_s))

    async def get(self, name: str) -> str | None:
        text = await self._asked(self._client.get(f"{self._prefix}:{name}"))
        return None if text is None else text.decode("utf-8", "replace")

    async def remove(self, name: str) -> None:
        await self._asked(self._client.delete(f"{self._prefix}:{name}"))

    async def _asked(self, request: Awaitable[_Answer]) -> _Answer:
        from redis.exceptions import RedisError

        try:
            with anyio.fail_after(_REDIS_TIMEOUT_S):
                return await request
        except (RedisError, OSError) as error:
            raise ResourceBusy(
                "Redis, which stores callers' keys for index jobs, does not answer",
                hint="try again in a moment",
                private={"error": type(error).__name__},
            ) from None


@asynccontextmanager
async def open_credentials(redis_url: SecretStr | None, security: SecuritySettings) -> AsyncGenerator[Credentials]:
    """Credentials for models that need callers' keys: in Redis if a URL is given, otherwise in memory."""
    keks, ttl_s = Keks(security.encryption_keks), security.credential_cache_ttl_seconds
    if redis_url is None:
        yield Credentials(MemoryCache(ttl_s=ttl_s), keks, ttl_s=ttl_s)
        return
    async with aclosing(_redis_client(redis_url)) as client:
        cache = RedisCache(client, prefix=security.credential_cache_prefix, ttl_s=ttl_s)
        yield Credentials(cache, keks, ttl_s=ttl_s)


def _redis_client(url: SecretStr) -> _RedisClient:
    try:
        from redis.asyncio import ConnectionPool, Redis
        from redis.asyncio.connection import parse_url
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
        from redis.credentials import CredentialProvider
    except ImportError as error:
        raise ConfigError(
            "store.redis_url is set, and the package redis is not installed", hint="pip install 'armarium[store]'"
        ) from error

    class CurrentPassword(CredentialProvider):
        """User and password in the URL at the time of each connection."""

        def get_credentials(self) -> Any:
            with suppress(ValueError):
                current = cast(dict[str, Any], parse_url(url.get_secret_value()))
                self.known = tuple(current[name] for name in ("username", "password") if name in current) or self.known
            return self.known

        known: tuple[str, ...] = ()

    try:
        options = cast(dict[str, Any], parse_url(url.get_secret_value()))
    except ValueError:
        # The message may contain the address, and with it a password.
        raise ConfigError(
            "store.redis_url is not a Redis URL", hint="use redis://, rediss:// or unix:// with an address"
        ) from None
    options.pop("username", None)
    if options.pop("password", None) is not None:
        options["credential_provider"] = CurrentPassword()
    timeouts = {"socket_timeout": _REDIS_TIMEOUT_S, "socket_connect_timeout": _REDIS_TIMEOUT_S}
    # One immediate retry, for a connection that Redis closed while it was idle. More would only delay the error.
    pool = cast(Any, ConnectionPool)(**({"retry": Retry(NoBackoff(), 1)} | timeouts | options))
    return cast(Any, Redis).from_pool(pool)


def _bound_to(scope: Scope, reference: str) -> bytes:
    return json.dumps([*scope, reference]).encode()
