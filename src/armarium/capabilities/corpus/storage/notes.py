"""Key-value notes of a corpus about itself: its models, its id, how far each index is."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from armarium.capabilities.corpus.errors import StoreCorrupt
from armarium.capabilities.corpus.storage.database import Database

_DIGEST_KEY = "credential_digest_key"
_DIGEST_KEY_BYTES = 32


class Notes:
    """The rows of the table `settings`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key: str) -> str | None:
        """The value of a key, or None."""
        return self._database.setting(key)

    def put(self, key: str, value: str) -> None:
        """Set a value, in the current transaction or in a new one."""
        with self._database.transaction():
            self._database.put_setting(key, value)

    def digest_key(self) -> bytes:
        """The random key for digests that identify credentials without storing them. Created on first use."""
        kept = self.get(_DIGEST_KEY)
        if kept is None:
            kept = secrets.token_hex(_DIGEST_KEY_BYTES)
            self.put(_DIGEST_KEY, kept)
        return bytes.fromhex(kept)

    def digest_key_as_noted(self) -> dict[str, str] | None:
        """The digest key as a key-value pair, or None. Raises if it is damaged."""
        kept = self.get(_DIGEST_KEY)
        return None if kept is None else {_DIGEST_KEY: kept}

    def put_new(self, notes: Mapping[str, str]) -> None:
        """Set the values that differ from the stored ones. Writes nothing if none does."""
        new = {key: value for key, value in notes.items() if not self._is_noted(key, value)}
        if new:
            with self._database.transaction():
                for key, value in new.items():
                    self.put(key, value)

    def _is_noted(self, key: str, value: str) -> bool:
        try:
            return self.get(key) == value
        except StoreCorrupt:
            # It is about to be overwritten.
            return False
