"""Callers and their keys: principals, authentication, the generated token."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from armarium.foundation.errors import ConfigError
from armarium.foundation.files.state_files import create_once


@dataclass(frozen=True, slots=True)
class Principal:
    """A verified caller. It has the hash of the key, never the key itself."""

    username: str
    groups: tuple[str, ...]
    apikey_hash: str
    capabilities: frozenset[str] | None = None
    """The capabilities that the caller may use; None means all."""
    read_only: bool = False
    """Whether the caller may use only tools that change nothing."""
    requests_per_second: float | None = None
    """The rate limit of this caller instead of the server's."""
    calls_in_flight: int | None = None
    """The concurrent calls of this caller instead of the server's limit."""
    is_owner: bool = False
    """Whether it is the user who runs the program, whom no group restricts: they can read its files without it."""

    @property
    def person(self) -> str:
        """Identifies whose threads and calls these are. The owner has the key hash of the token, and so its files in
        the store, but agents that carry the token are not the owner."""
        return key_hash(f"owner {self.apikey_hash}") if self.is_owner else self.apikey_hash


def key_hash(key: str) -> str:
    """The SHA-256 of an API key. Keys are configured, compared and recorded in this form."""
    return hashlib.sha256(key.encode()).hexdigest()


ANYONE = Principal("anonymous", (), key_hash(""))
LOCAL = Principal("local", (), key_hash(""), is_owner=True)
"""The user who runs a command, or whose process talks to the server over stdio."""


class Authenticator:
    """Finds the principal of a bearer key."""

    def __init__(
        self,
        principals: Sequence[Principal],
        *,
        open_to_anyone: bool = False,
        further: Callable[[], Sequence[tuple[str, Principal]]] = lambda: (),
        owner: Callable[[], Principal] = lambda: LOCAL,
    ) -> None:
        self._principals = [(principal.apikey_hash, principal) for principal in principals]
        self.is_open = open_to_anyone
        """Whether everyone may call without a key."""
        self.owner = owner
        """The user who runs the server, for those who have proved to be that user."""
        self._further = further
        """Keys that change while the server runs, as hashes with their principals."""

    def knows(self, principal: Principal) -> bool:
        """Whether a key of this principal is still valid."""
        if self.is_open:
            return principal is ANYONE
        return principal == self.owner() or any(
            principal == known for _, known in (*self._principals, *self._further())
        )

    def identify(self, key: str | None) -> Principal | None:
        """The principal, or None if the key is missing or wrong."""
        if self.is_open:
            return ANYONE
        if key is None:
            return None
        presented = key_hash(key).encode()
        found: Principal | None = None
        # Compare every key, so that the time reveals nothing about the keys.
        for known, principal in (*self._principals, *self._further()):
            if hmac.compare_digest(known.encode(), presented):
                found = principal
        return found


def read_token(path: Path) -> str:
    """The token in a file, without surrounding white space."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"cannot read the token file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the token file {path} is not text", hint="write a long random string into it") from error
    if not token:
        raise ConfigError(f"the token file {path} is empty", hint="write a long random string into it")
    return token


def ensure_token(path: Path) -> str:
    """The token in `path`. On the first start it is generated, readable only by its owner."""
    try:
        # An existing token does not require a writable directory.
        if not path.exists():
            create_once(path, f"{secrets.token_urlsafe(32)}\n".encode())
    except OSError as error:
        raise ConfigError(
            f"cannot store a token in {path.parent}: {error.strerror}",
            hint="let this user write there, or set `state_dir` to a directory where they can",
        ) from error
    return read_token(path)
