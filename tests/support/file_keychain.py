"""A keychain for processes of a test: what is put into it is in a file that the test can look at."""

from __future__ import annotations

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend


class FileKeychain(KeyringBackend):
    """Entries by service and user, in the file that `KEYCHAIN_FILE` names."""

    priority = 1

    def get_password(self, service: str, username: str) -> str | None:
        return self._entries().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._file.write_text(json.dumps(self._entries() | {f"{service}/{username}": password}))

    @property
    def _file(self) -> Path:
        return Path(os.environ["KEYCHAIN_FILE"])

    def _entries(self) -> dict[str, str]:
        return json.loads(self._file.read_text()) if self._file.exists() else {}
