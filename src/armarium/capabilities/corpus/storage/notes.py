"""What a corpus remembers about itself: which models made it, and how far each part of it is."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from armarium.capabilities.corpus.storage.database import Database

_DIGEST_KEY = "credential_digest_key"
_DIGEST_KEY_BYTES = 32


class Notes:
    """Values under keys, in the table `settings`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key: str) -> str | None:
        """What is noted under the key."""
        rows = self._database.read_latest("get_setting", (key,))
        return rows[0][0] if rows else None

    def put(self, key: str, value: str) -> None:
        """Note a value, in the transaction under way or in one of its own."""
        with self._database.transaction():
            self._database.write("put_setting", (key, value))

    def digest_key(self) -> bytes:
        """The key by which this corpus tells credentials apart without keeping them; made once, by chance."""
        kept = self.get(_DIGEST_KEY)
        if kept is None:
            kept = secrets.token_hex(_DIGEST_KEY_BYTES)
            self.put(_DIGEST_KEY, kept)
        return bytes.fromhex(kept)

    def put_new(self, notes: Mapping[str, str]) -> None:
        """Put down values that are not down yet; nothing is written when all are."""
        new = {key: value for key, value in notes.items() if self.get(key) != value}
        if new:
            with self._database.transaction():
                for key, value in new.items():
                    self.put(key, value)
