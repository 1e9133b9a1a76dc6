"""Secrets that expire, and what each of them grants. In memory only."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from armarium.foundation.security.identity import Principal

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Issued(Generic[T]):
    principal: Principal
    grant: T
    expires_at: float


class IssuedSecrets(Generic[T]):
    """Grants by the hash of their secret, each of one caller and for the same time. At a limit, the oldest one makes
    room: of the caller, or of all."""

    def __init__(
        self, ttl_s: float, *, most: int, most_of_caller: int, clock: Callable[[], float] = time.time, length: int = 32
    ) -> None:
        """`length` is that of a secret in bytes."""
        self._ttl_s, self._most, self._most_of_caller = ttl_s, most, most_of_caller
        self._clock, self._length = clock, length
        self._issued: OrderedDict[bytes, _Issued[T]] = OrderedDict()

    def issue(self, principal: Principal, grant: T) -> tuple[str, float]:
        """A new secret, and when it expires."""
        now = self._clock()
        while self._issued and next(iter(self._issued.values())).expires_at <= now:
            self._issued.popitem(last=False)
        own = [key for key, each in self._issued.items() if each.principal == principal]
        if len(own) >= self._most_of_caller:
            del self._issued[own[0]]
        elif len(self._issued) >= self._most:
            self._issued.popitem(last=False)
        secret = secrets.token_urlsafe(self._length)
        self._issued[_hash(secret)] = _Issued(principal, grant, now + self._ttl_s)
        return secret, now + self._ttl_s

    def find(self, secret: str) -> T | None:
        """What the secret grants, if it is valid."""
        return self._valid(self._issued.get(_hash(secret)))

    def redeem(self, secret: str) -> T | None:
        """The same, once."""
        return self._valid(self._issued.pop(_hash(secret), None))

    def revoke(self, condition: Callable[[T], bool]) -> None:
        """Remove the grants that meet the condition."""
        for key in [key for key, each in self._issued.items() if condition(each.grant)]:
            del self._issued[key]

    def _valid(self, found: _Issued[T] | None) -> T | None:
        return found.grant if found is not None and found.expires_at > self._clock() else None


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
