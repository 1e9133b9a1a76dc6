"""Marks state that this user's Armarium wrote, with a key that is stored outside all served directories.

A served directory may come from anywhere, and may contain an index, a registry or a token. Only what has a valid mark
was written by this user.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from armarium.foundation.errors import ConfigError
from armarium.foundation.files.state_files import (
    create_once,
    exclusive_lock,
    make_way,
    open_regular,
    replace_file,
    user_state_directory,
)
from armarium.foundation.security.identity import ensure_token

_KEY_BYTES = 32
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MARK_SUFFIX = ".mark"


def mark_of(kind: str, identity: str) -> str:
    """The mark of a state: it proves that this user's Armarium wrote the identity down."""
    return hmac.new(_user_key(), f"{kind}\0{identity}".encode(), hashlib.sha256).hexdigest()


def has_mark(kind: str, identity: str | None, mark: str | None) -> bool:
    """Whether the mark is this user's mark of that state."""
    if not identity or not mark:
        return False
    return hmac.compare_digest(mark_of(kind, identity).encode(), mark.encode("utf-8", "backslashreplace"))


def is_private_file(path: Path) -> bool:
    """Whether the path is a regular file of this user that nobody else can access. A checkout has no such file: version
    control does not preserve these permissions."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS


def predates_marks(path: Path) -> bool:
    """Whether a file without a mark can be of an earlier version, which wrote none: it is private, and was last changed
    before this user's key was made. No archive can set that time."""
    _user_key()
    return is_private_file(path) and os.lstat(path).st_ctime_ns < os.stat(_key_file()).st_mtime_ns


def ensure_own_token(path: Path) -> tuple[str, bool]:
    """The token in a state directory that may come from elsewhere, and whether it replaces one that is not ours."""
    mark = path.with_name(path.name + _MARK_SUFFIX)
    with exclusive_lock(path.parent):
        token = _read_private(path)
        is_own = has_mark("token", token, _read_private(mark))
        replaced = not is_own and os.path.lexists(path)
        if not is_own:
            make_way(path)
            path.unlink(missing_ok=True)
            token = ensure_token(path)
            mark_token(path, token)
    assert token is not None
    return token, replaced


def mark_token(path: Path, token: str | None = None) -> None:
    """Mark the token in a file as this user's. Does nothing if the file is not private."""
    token = token or _read_private(path)
    if token is not None:
        mark = path.with_name(path.name + _MARK_SUFFIX)
        make_way(mark)
        replace_file(mark, mark_of("token", token).encode())


def _read_private(path: Path) -> str | None:
    if not is_private_file(path):
        return None
    try:
        with open_regular(path) as file:
            return file.read().decode().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _key_file() -> Path:
    return user_state_directory() / "state.key"


def _user_key() -> bytes:
    """The key of this user, made at the first use."""
    file = _key_file()
    try:
        if not file.exists():
            create_once(file, secrets.token_bytes(_KEY_BYTES))
        if not is_private_file(file):
            raise ConfigError(
                f"{file} is accessible to other users",
                hint=f"delete it; indexes are rebuilt, and registries need `armarium trust add`: rm {file}",
            )
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot store a key in {file.parent}: {error.strerror}",
            hint="set XDG_STATE_HOME to a directory that this user can write",
        ) from error
