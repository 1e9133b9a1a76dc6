"""The token clients must show: made by us, from a file, or from the environment."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from armarium.capabilities.corpus.commands.settings_loader import Loaded, is_loopback
from armarium.foundation.errors import ConfigError
from armarium.foundation.identity import Authenticator, Principal, ensure_token, key_hash, read_token

TOKEN_FILE = "secret.token"  # noqa: S105 the name of a file, not a secret
TokenSource = Literal["secret.token", "env", "file", "none"]


@dataclass(frozen=True, slots=True)
class Access:
    """Who may call, and how a client comes by its token."""

    source: TokenSource
    place: str
    """The file or the variable the token is in."""
    by_flag: bool = False
    """Whether the command line chose it, and not the settings."""

    @property
    def token_file(self) -> Path | None:
        """The file the token is in, if it is in one."""
        return Path(self.place) if self.source in ("secret.token", "file") else None

    @property
    def auth_setting(self) -> str:
        """What `security.auth` of the server says."""
        if self.source == "file":
            return f"file:{self.place}"
        return "none" if self.source == "none" else "auto"

    @property
    def file_chosen_by(self) -> str:
        """Who named the file of the user's own, as it is written there."""
        return f"--auth file:{self.place}" if self.by_flag else f"security.auth.token_file: {self.place}"

    @property
    def placeholder(self) -> str:
        """What stands for the token where it must not be written."""
        return {
            "secret.token": "<token-from-secret.token>",
            "env": f"<token-from-env:{self.place}>",
            "file": "<token-from-file>",
            "none": "",
        }[self.source]


def choose_access(loaded: Loaded, environ: Mapping[str, str], *, chosen_by_flag: bool) -> Access:
    """Where the token comes from: a flag wins over the environment, the environment over the file of settings."""
    auth = loaded.settings.security.auth
    if auth.mode == "file" and not auth.token_file:
        raise ConfigError("security.auth.mode is file, and there is no token_file", hint="set security.auth.token_file")
    wants_file = auth.mode == "file" or (auth.mode == "auto" and bool(auth.token_file))
    decided = chosen_by_flag and (wants_file or auth.mode == "none")
    if not decided and environ.get(auth.token_env):
        return Access("env", auth.token_env)
    if wants_file:
        return Access("file", str(loaded.below_root(auth.token_file)), by_flag=chosen_by_flag)
    if auth.mode == "none":
        host, _ = loaded.listen_address()
        if not is_loopback(host):
            raise ConfigError(
                f"a server on {host} must have a token, and --auth is none",
                hint="use --auth auto or --auth file:<path>, or listen on 127.0.0.1",
            )
        return Access("none", "")
    return Access("secret.token", str(loaded.state_dir / TOKEN_FILE))


def open_door(access: Access, environ: Mapping[str, str]) -> Authenticator:
    """Checks tokens from now on; makes the token where it is ours to make."""
    match access.source:
        case "none":
            return Authenticator((), open_to_anyone=True)
        case "env":
            token = environ[access.place].strip()
            if not token:
                raise ConfigError(f"{access.place} is empty", hint="put a long random string into it")
        case "file":
            token = read_token(Path(access.place))
        case "secret.token":
            token = ensure_token(Path(access.place))
    return Authenticator((Principal("owner", (), key_hash(token)),))


def readable_by_others(access: Access) -> bool:
    """Whether a token file of the user's own is open to other users of this machine."""
    return access.source == "file" and bool(stat.S_IMODE(Path(access.place).stat().st_mode) & 0o077)
