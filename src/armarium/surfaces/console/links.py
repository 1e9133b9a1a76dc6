"""One-time links that log a browser in: a code in the fragment of the address, which no server, log or proxy sees."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from armarium.foundation.files.state_files import make_private_directory
from armarium.foundation.security.identity import Principal
from armarium.foundation.security.issued_secrets import IssuedSecrets

VALID_S = 300.0
"""How long a link is valid."""

_CODE_BYTES = 20
_MAX_LINKS = 10_000
_MAX_LINKS_PER_PRINCIPAL = 20
_DIRECTORY = "console-links"


class OwnerLinks:
    """Links for the user who runs the server, in whose state directory their hashes are.

    Commands create them without asking the server: whoever may write in that directory may do everything else, too.
    """

    def __init__(self, state_dir: Path, clock: Callable[[], float] = time.time) -> None:
        self._directory = state_dir / _DIRECTORY
        self._clock = clock

    def create(self) -> str:
        """A new code."""
        make_private_directory(self._directory)
        for file in self._directory.iterdir():
            with suppress(FileNotFoundError):
                if not self._is_fresh(file.stat(follow_symlinks=False)):
                    file.unlink()
        code = secrets.token_urlsafe(_CODE_BYTES)
        os.close(os.open(self._directory / _hash(code), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        return code

    def redeem(self, code: str) -> bool:
        """Whether the code is valid. A code is valid once."""
        file = self._directory / _hash(code)
        try:
            found = file.stat(follow_symlinks=False)
            # Of two that redeem a code at once, one does not find the file.
            file.unlink()
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and self._is_fresh(found)

    def _is_fresh(self, file: os.stat_result) -> bool:
        return -VALID_S < self._clock() - file.st_mtime < VALID_S


class KeyLinks:
    """Links that callers create for themselves with their key. They are in memory, because they may hold that key."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._links = IssuedSecrets[tuple[Principal, str | None]](
            VALID_S, most=_MAX_LINKS, most_of_caller=_MAX_LINKS_PER_PRINCIPAL, clock=clock, length=_CODE_BYTES
        )

    def create(self, principal: Principal, key: str | None) -> tuple[str, float]:
        """A new code, and when it expires."""
        return self._links.issue(principal, (principal, key))

    def redeem(self, code: str) -> tuple[Principal, str | None] | None:
        """As whom the code logs in, and with which key, if it is valid. A code is valid once."""
        return self._links.redeem(code)


def link(address: str, code: str) -> str:
    """The link to the console of the server at this address."""
    return f"{address}/console#in={code}"


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
