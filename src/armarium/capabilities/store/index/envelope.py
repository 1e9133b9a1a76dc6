"""Encrypted envelopes for callers' keys, with an expiry and bound associated data."""

from __future__ import annotations

import hashlib
import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

from pydantic import SecretStr

from armarium.capabilities.store.errors import StoreError
from armarium.foundation.errors import ConfigError
from armarium.foundation.settings.file_secrets import FileSecret
from armarium.foundation.telemetry import timestamp

_PURPOSE = b"armarium store credential envelope"
_FIELDS = {"kek_id", "dek_id", "ciphertext", "aad", "expires_at"}
_DEK_ID_BYTES = 16
_NONCE_BYTES = 12
_KEY_BYTES = 32


class EnvelopeRejected(StoreError, code="CREDENTIAL_REJECTED"):
    """An envelope is invalid, expired, or bound to other data. The error never contains the key."""


class Keks:
    """The key-encryption keys. The largest id encrypts; all of them decrypt, so that keys can be rotated. If the file
    of a key changes, the new key encrypts, and the previous one still decrypts."""

    def __init__(self, by_id: Mapping[int, SecretStr]) -> None:
        if not by_id:
            raise ConfigError(
                "callers' keys must be stored, and there is no key to encrypt them",
                hint="set store.security.encryption_keks, for example {1: <the output of `openssl rand -hex 32`>}",
            )
        self._keks = dict(by_id)
        self._newest = max(self._keks)

    def __repr__(self) -> str:
        return f"Keks(ids={sorted(self._keks)})"

    def seal(self, secret: str, *, aad: bytes, expires_at: datetime) -> str:
        """Encrypt `secret` into an envelope that opens only with the same `aad`, until `expires_at`."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        dek_id = secrets.token_bytes(_DEK_ID_BYTES)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        until = timestamp(expires_at.astimezone(UTC))
        kek = self._keks[self._newest].get_secret_value()
        sealed = AESGCM(_dek(kek, self._newest, dek_id)).encrypt(nonce, secret.encode(), _bound(aad, until))
        return json.dumps(
            {
                "kek_id": self._newest,
                "dek_id": b64encode(dek_id).decode(),
                "ciphertext": b64encode(nonce + sealed).decode(),
                "aad": b64encode(aad).decode(),
                "expires_at": until,
            }
        )

    def open(self, envelope: str, *, aad: bytes, now: datetime | None = None) -> str:
        """Decrypt an envelope that was sealed with these keys and this `aad` and has not expired."""
        secret = self._opened(envelope, aad, now or datetime.now(UTC))
        # Raised here, without a cause, because errors of parsers contain what they parsed.
        if secret is None:
            raise EnvelopeRejected("a stored key cannot be used", hint="write the file again to store the key again")
        return secret

    def _opened(self, envelope: str, aad: bytes, now: datetime) -> str | None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            parts = cast(dict[str, Any], json.loads(envelope))
            if set(parts) != _FIELDS or b64decode(parts["aad"], validate=True) != aad:
                return None
            until: str = parts["expires_at"]
            if datetime.fromisoformat(until) <= now:
                return None
            sealed = b64decode(parts["ciphertext"], validate=True)
            kek_id, dek_id = parts["kek_id"], b64decode(parts["dek_id"], validate=True)
            for kek in self._decrypting(kek_id):
                with suppress(InvalidTag):
                    cipher = AESGCM(_dek(kek, kek_id, dek_id))
                    return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _bound(aad, until)).decode()
        except (KeyError, TypeError, ValueError, RecursionError):
            pass
        return None

    def _decrypting(self, kek_id: int) -> list[str]:
        secret = self._keks[kek_id]
        keks = [secret.get_secret_value()]
        if isinstance(secret, FileSecret) and secret.previous is not None:
            keks.append(secret.previous)
        return keks


def _dek(kek: str, kek_id: int, dek_id: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = _PURPOSE + int(kek_id).to_bytes(2, "big")
    return HKDF(SHA256(), _KEY_BYTES, salt=dek_id, info=info).derive(hashlib.sha256(kek.encode()).digest())


def _bound(aad: bytes, until: str) -> bytes:
    """The authenticated data. It includes the expiry, so that write access to the cache cannot extend it."""
    return json.dumps([b64encode(aad).decode(), until]).encode()
