"""The bearer token of the server: generated, from a file, or from the environment."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from armarium.capabilities.corpus.commands.settings_loader import LoadedSettings
from armarium.foundation.authentication import is_loopback
from armarium.foundation.errors import ConfigError
from armarium.foundation.identity import Authenticator, Principal, ensure_token, key_hash, read_token

TOKEN_FILE = "secret.token"  # noqa: S105 the name of a file, not a secret
TokenSourceKind = Literal["secret.token", "env", "file", "none"]


@dataclass(frozen=True, slots=True)
class TokenSource:
    """The source of the token that clients must send."""

    kind: TokenSourceKind
    place: str
    """The file or the variable with the token."""
    by_flag: bool = False
    """Whether a flag selected it instead of a setting."""

    @property
    def auth_setting(self) -> str:
        """The value for the server's setting `security.auth`."""
        if self.kind == "file":
            return f"file:{self.place}"
        return "none" if self.kind == "none" else "auto"


def choose_token_source(loaded: LoadedSettings, environ: Mapping[str, str], *, chosen_by_flag: bool) -> TokenSource:
    """Select the source of the token. A flag overrides the environment, which overrides the settings file."""
    auth = loaded.settings.security.auth
    if auth.mode == "file" and not auth.token_file:
        raise ConfigError("security.auth.mode is file, but token_file is not set", hint="set security.auth.token_file")
    uses_file = auth.mode == "file" or (auth.mode == "auto" and bool(auth.token_file))
    flag_decides = chosen_by_flag and (uses_file or auth.mode == "none")
    if not flag_decides and environ.get(auth.token_env):
        return TokenSource("env", auth.token_env)
    if uses_file:
        return TokenSource("file", str(loaded.resolve_path(auth.token_file)), by_flag=chosen_by_flag)
    if auth.mode == "none":
        host, _ = loaded.listen_address()
        if not is_loopback(host):
            raise ConfigError(
                f"a server on {host} requires a token, but --auth is none",
                hint="use --auth auto or --auth file:<path>, or listen on 127.0.0.1",
            )
        return TokenSource("none", "")
    return TokenSource("secret.token", str(loaded.state_dir / TOKEN_FILE))


def create_authenticator(token_source: TokenSource, environ: Mapping[str, str]) -> Authenticator:
    """The authenticator for the token, which is generated if necessary."""
    match token_source.kind:
        case "none":
            return Authenticator((), open_to_anyone=True)
        case "env":
            token = environ[token_source.place].strip()
            if not token:
                raise ConfigError(f"{token_source.place} is empty", hint="set it to a long random string")
        case "file":
            token = read_token(Path(token_source.place))
        case "secret.token":
            token = ensure_token(Path(token_source.place))
    return Authenticator((Principal("owner", (), key_hash(token)),))


def readable_by_others(token_source: TokenSource) -> bool:
    """Whether other users can read the user's token file."""
    return token_source.kind == "file" and bool(stat.S_IMODE(Path(token_source.place).stat().st_mode) & 0o077)
