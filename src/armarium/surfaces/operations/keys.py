"""`/api/admin/keys`: administrators list, add, rotate and revoke the keys of callers, like `armarium keys`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, NotRequired

import anyio.to_thread
from pydantic import AwareDatetime, Field
from typing_extensions import TypedDict

from armarium.foundation.audit import last_calls
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.security.keys import KeyFile, Name, StoredKey, utc_now
from armarium.foundation.telemetry import timestamp
from armarium.foundation.tools import Args, Call, NoArgs


class AddKeyArgs(Args):
    name: Name
    """Name of the caller in the audit log and in access rules."""
    groups: list[str] = Field(default_factory=list[str], max_length=100)
    """Groups of the caller."""
    capabilities: list[str] | None = Field(default=None, min_length=1)
    """Capabilities that the key may use; all by default."""
    access: Literal["read", "write"] = "write"
    """`read` permits only tools that change nothing."""
    expires_at: AwareDatetime | None = None
    """When the key ends: a date and time with a zone (ISO 8601); never by default."""
    requests_per_second: float | None = Field(default=None, gt=0)
    """Rate limit of this key, instead of the server's."""
    calls_in_flight: int | None = Field(default=None, gt=0)
    """Concurrent calls of this key, instead of the server's limit."""


class KeyName(Args):
    name: str
    """Name of the key."""


class RotateKeyArgs(KeyName):
    grace_s: int = Field(default=0, ge=0, le=30 * 86400)
    """How many seconds the old secret stays valid."""


class ListedKey(TypedDict):
    name: str
    managed: bool
    """Whether it can be changed here. Keys in the settings file cannot."""
    groups: list[str]
    capabilities: NotRequired[list[str]]
    """Those that the key may use; all if absent."""
    access: Literal["read", "write"]
    created_at: NotRequired[str]
    expires_at: NotRequired[str]
    expired: bool
    rotated_at: NotRequired[str]
    requests_per_second: NotRequired[float]
    calls_in_flight: NotRequired[int]
    last_call_at: NotRequired[str]


class Keys(TypedDict):
    keys: list[ListedKey]
    capabilities: list[str]
    """What a key can be restricted to."""


class NewSecret(TypedDict):
    key: ListedKey
    secret: str
    """The secret, which is shown only here and stored nowhere."""


class RevokedKey(TypedDict):
    revoked: str


@dataclass(frozen=True, slots=True)
class KeyTools:
    """What administrators do with keys. Servers notice each change at once."""

    file: Path
    listed: Sequence[tuple[str, Sequence[str], str]]
    """The keys in the settings file: name, groups, hash."""
    capabilities: Sequence[str]
    audit_file: Path | None

    async def list_keys(self, call: Call, args: NoArgs) -> Keys:
        """List the keys of callers. Their secrets are not stored and cannot be listed."""
        return await anyio.to_thread.run_sync(self._list)

    async def add_key(self, call: Call, args: AddKeyArgs) -> NewSecret:
        """Add a key for a caller. The answer has its secret, which is shown only once."""
        for each in args.capabilities or ():
            if each not in self.capabilities:
                hint = f"one of {', '.join(self.capabilities)}"
                raise InvalidArgument(f"there is no capability {each[:40]}", hint=hint, field="capabilities")
        if args.expires_at is not None and args.expires_at <= utc_now():
            raise InvalidArgument("`expires_at` is in the past", field="expires_at")
        traits: dict[str, Any] = args.model_dump(exclude={"name"})
        traits["groups"] = tuple(args.groups)
        traits["capabilities"] = None if args.capabilities is None else tuple(args.capabilities)
        return await self._changed(lambda file: file.add(args.name, **traits))

    async def rotate_key(self, call: Call, args: RotateKeyArgs) -> NewSecret:
        """Replace the secret of a key. The caller keeps their files and rights."""
        return await self._changed(lambda file: file.rotate(args.name, grace=timedelta(seconds=args.grace_s)))

    async def revoke_key(self, call: Call, args: KeyName) -> RevokedKey:
        """Remove a key. Its next request is refused; calls in progress finish."""
        revoked = await anyio.to_thread.run_sync(partial(KeyFile(self.file).revoke, args.name))
        return {"revoked": revoked.name}

    async def _changed(self, change: Callable[[KeyFile], tuple[StoredKey, str]]) -> NewSecret:
        stored, secret = await anyio.to_thread.run_sync(change, KeyFile(self.file))
        return {"key": _described(stored), "secret": secret}

    def _list(self) -> Keys:
        stored = KeyFile(self.file).read()
        hashes = [*(key.identity for key in stored), *(sha256 for *_, sha256 in self.listed)]
        called = last_calls(self.audit_file, hashes) if self.audit_file is not None else {}
        keys = [_described(key, called.get(key.identity)) for key in stored]
        for name, groups, sha256 in self.listed:
            key: ListedKey = {
                "name": name, "managed": False, "groups": list(groups), "access": "write", "expired": False,
            }  # fmt: skip
            if sha256 in called:
                key["last_call_at"] = called[sha256]
            keys.append(key)
        return {"keys": keys, "capabilities": list(self.capabilities)}


def _described(key: StoredKey, last_call_at: str | None = None) -> ListedKey:
    described: dict[str, Any] = {
        "name": key.name,
        "managed": True,
        "groups": list(key.groups),
        "capabilities": None if key.capabilities is None else list(key.capabilities),
        "access": key.access,
        "created_at": _time(key.created_at),
        "expires_at": _time(key.expires_at),
        "expired": key.is_expired(utc_now()),
        "rotated_at": _time(key.rotated_at),
        "requests_per_second": key.requests_per_second,
        "calls_in_flight": key.calls_in_flight,
        "last_call_at": last_call_at,
    }
    return ListedKey(**{name: value for name, value in described.items() if value is not None})  # pyright: ignore[reportReturnType] the required ones are not None


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp(moment)
