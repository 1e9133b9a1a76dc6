"""What a corpus remembers about itself: which models made it, and how far each part of it is."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from armarium.capabilities.corpus.errors import StoreCorrupt
from armarium.capabilities.corpus.storage.database import Database

_DIGEST_KEY = "credential_digest_key"
_DIGEST_KEY_BYTES = 32


class Notes:
    """Values under keys, in the table `settings`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key: str) -> str | None:
        """What is noted under the key."""
        return self._database.setting(key)

    def put(self, key: str, value: str) -> None:
        """Note a value, in the transaction under way or in one of its own."""
        with self._database.transaction():
            self._database.put_setting(key, value)

    def digest_key(self) -> bytes:
        """The key by which this corpus tells credentials apart without keeping them; made once, by chance."""
        kept = self.get(_DIGEST_KEY)
        if kept is None:
            kept = secrets.token_hex(_DIGEST_KEY_BYTES)
            self.put(_DIGEST_KEY, kept)
        return bytes.fromhex(kept)

    def digest_key_as_noted(self) -> dict[str, str] | None:
        """The key and its name, if there is one; raises when it is damaged."""
        kept = self.get(_DIGEST_KEY)
        return None if kept is None else {_DIGEST_KEY: kept}

    def put_new(self, notes: Mapping[str, str]) -> None:
        """Put down values that are not down yet; nothing is written when all are."""
        new = {key: value for key, value in notes.items() if not self._is_noted(key, value)}
        if new:
            with self._database.transaction():
                for key, value in new.items():
                    self.put(key, value)

    def _is_noted(self, key: str, value: str) -> bool:
        try:
            return self.get(key) == value
        except StoreCorrupt:
            # It is about to be written anew.
            return False
