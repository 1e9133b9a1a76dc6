"""Keys of callers, kept as hashes in a file that commands change while servers read it."""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from armarium.foundation.errors import ArmariumError, ConfigError
from armarium.foundation.files.state_files import exclusive_lock, file_version, make_private_directory, replace_file
from armarium.foundation.security.identity import Principal, key_hash

PREFIX = "arm_"
"""Begins every key, so that scanners for leaked secrets can recognise one."""
_MAX_FILE_BYTES = 16 * 1024 * 1024

_log = logging.getLogger(__name__)

Now = Callable[[], datetime]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]


def utc_now() -> datetime:
    """The current time."""
    return datetime.now(UTC)


class UnknownKey(ArmariumError):
    """There is no key of that name."""

    code, http_status = "KEY_NOT_FOUND", 404


class KeyExists(ArmariumError):
    """There is a key of that name already."""

    code, http_status = "KEY_EXISTS", 409


class StoredKey(BaseModel):
    """A key, without its secret."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    key_sha256: Sha256
    identity: Sha256
    """The hash of the first secret. It identifies the caller's files, limits and records, so that a rotation keeps
    them."""
    created_at: AwareDatetime
    groups: tuple[str, ...] = ()
    capabilities: tuple[str, ...] | None = None
    """The capabilities that the key may use; None means all."""
    access: Literal["read", "write"] = "write"
    """`read` permits only tools that change nothing."""
    expires_at: AwareDatetime | None = None
    rotated_at: AwareDatetime | None = None
    requests_per_second: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """Rate limit of this key instead of the server's."""
    calls_in_flight: Annotated[int, Field(gt=0)] | None = None
    """Concurrent calls of this key instead of the server's limit."""
    previous_sha256: Sha256 | None = None
    """The key before the last rotation, valid until `previous_expires_at`."""
    previous_expires_at: AwareDatetime | None = None

    def is_expired(self, now: datetime) -> bool:
        """Whether the key is not valid any more."""
        return self.expires_at is not None and self.expires_at <= now

    def valid_hashes(self, now: datetime) -> list[str]:
        """The hashes of the secrets that are valid: none if the key is expired, two while a rotation lasts."""
        if self.is_expired(now):
            return []
        is_rotating = self.previous_expires_at is not None and now < self.previous_expires_at
        return [self.key_sha256, *([self.previous_sha256] if is_rotating and self.previous_sha256 else [])]

    @property
    def principal(self) -> Principal:
        """The caller that the key identifies, the same after a rotation."""
        capabilities = None if self.capabilities is None else frozenset(self.capabilities)
        return Principal(
            self.name,
            self.groups,
            self.identity,
            capabilities,
            read_only=self.access == "read",
            requests_per_second=self.requests_per_second,
            calls_in_flight=self.calls_in_flight,
        )


class _Contents(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    keys: list[StoredKey] = []


class KeyFile:
    """The file with the keys of a server. Changes replace it atomically, and one at a time across processes."""

    def __init__(self, path: Path, *, now: Now = utc_now) -> None:
        self._path = path
        self._now = now

    def read(self) -> list[StoredKey]:
        """All keys, by name. Raises `ConfigError` if the file is damaged, or if others can change it."""
        try:
            with open(self._path, "rb") as file:
                status = os.fstat(file.fileno())
                content = file.read(_MAX_FILE_BYTES)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(
                f"cannot read the keys in {self._path}: {error.strerror}",
                hint="let this user read the file, or set `state_dir` to a directory where they can",
            ) from error
        if status.st_uid not in (0, os.getuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(
                f"the keys in {self._path} can be changed by other users",
                hint=f"check them, then: chown {os.getuid()} {self._path} && chmod 600 {self._path}",
            )
        try:
            return sorted(_Contents.model_validate_json(content).keys, key=lambda key: key.name)
        except ValidationError as error:
            raise ConfigError(
                f"the keys in {self._path} are damaged, or a newer version wrote them",
                hint="restore the file from a backup, or delete it and add the keys again",
            ) from error

    def add(self, name: str, **traits: Any) -> tuple[StoredKey, str]:
        """Add a key. Returns it with its secret, which is kept nowhere."""
        secret = _new_secret()
        sha256 = key_hash(secret)
        try:
            key = StoredKey(name=name, key_sha256=sha256, identity=sha256, created_at=self._now(), **traits)
        except ValidationError as error:
            problem = error.errors(include_input=False)[0]
            field = ".".join(str(step) for step in problem["loc"])
            hint = "a name has up to 64 letters, digits and . _ @ -, and begins with a letter or digit"
            raise ConfigError(f"{field}: {problem['msg']}", hint=hint if field == "name" else None) from error
        with self._changing() as keys:
            if name in keys:
                raise KeyExists(f"there is a key {name} already", hint="rotate or revoke it, or use another name")
            keys[name] = key
        return key, secret

    def rotate(self, name: str, *, grace: timedelta = timedelta(0)) -> tuple[StoredKey, str]:
        """Replace the secret of a key. The old one stays valid for `grace`."""
        secret, now = _new_secret(), self._now()
        with self._changing() as keys:
            old = self._found(keys, name)
            update: dict[str, Any] = {"key_sha256": key_hash(secret), "rotated_at": now}
            update |= {"previous_sha256": old.key_sha256 if grace else None}
            update |= {"previous_expires_at": now + grace if grace else None}
            keys[name] = old.model_copy(update=update)
        return keys[name], secret

    def revoke(self, name: str) -> StoredKey:
        with self._changing() as keys:
            revoked = self._found(keys, name)
            del keys[name]
        return revoked

    def _found(self, keys: dict[str, StoredKey], name: str) -> StoredKey:
        if name not in keys:
            raise UnknownKey(f"there is no key {name}", hint="`armarium keys list` shows all of them")
        return keys[name]

    @contextmanager
    def _changing(self) -> Generator[dict[str, StoredKey]]:
        try:
            make_private_directory(self._path.parent)
            with exclusive_lock(self._path.parent):
                keys = {key.name: key for key in self.read()}
                yield keys
                contents = _Contents(keys=[keys[name] for name in sorted(keys)])
                replace_file(self._path, contents.model_dump_json(indent=2, exclude_none=True).encode() + b"\n")
        except OSError as error:
            raise ConfigError(f"cannot store keys in {self._path.parent}: {error.strerror}") from error


class LiveKeys:
    """The keys of a file, read again whenever the file changes.

    A file that cannot be read admits nobody: a revoked key must not stay valid because of damage.
    """

    def __init__(self, path: Path, *, now: Now = utc_now) -> None:
        self._path = path
        self._file = KeyFile(path, now=now)
        self._now = now
        self._read_at = file_version(self._path)
        self._keys = self._file.read()

    def valid(self) -> list[tuple[str, Principal]]:
        """The hash of every secret that is valid now, with its principal."""
        if (state := file_version(self._path)) != self._read_at:
            # Noted first: if the file changes again while it is read, the next call reads it again.
            self._read_at = state
            try:
                self._keys = self._file.read()
            except ConfigError as error:
                self._keys = []
                _log.error("the keys cannot be read; nobody can call with one", extra={"error": error.message})
        now = self._now()
        return [(sha256, key.principal) for key in self._keys for sha256 in key.valid_hashes(now)]


def _new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)
