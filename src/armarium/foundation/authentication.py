"""Determines from the settings who may call the server."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

from armarium.foundation.errors import ConfigError
from armarium.foundation.identity import ANYONE, Authenticator, Principal, ensure_token, key_hash, read_token
from armarium.foundation.keys import KeyFile, LiveKeys
from armarium.foundation.settings import CoreSettings


def open_authenticator(settings: CoreSettings) -> Authenticator:
    """The authenticator for `security.auth`. Creates the token file if the mode is `auto` and there is none."""
    if settings.security.auth == "none":
        if not is_loopback(settings.server.host):
            raise ConfigError(
                f"security.auth is none, but the server would listen on {settings.server.host}",
                hint="use auth: auto, file:<path> or keys, or listen on 127.0.0.1",
            )
        return Authenticator((), open_to_anyone=True)
    return Authenticator(principals(settings), further=LiveKeys(settings.keys_file()).valid)


def principals(settings: CoreSettings) -> list[Principal]:
    """Everyone who may call."""
    security = settings.security
    if security.auth == "none":
        return [ANYONE]
    if security.auth == "keys":
        if not security.keys and not KeyFile(settings.keys_file()).read():
            raise ConfigError(
                "security.auth is keys, but there is no key",
                hint="add one with `armarium keys add NAME`, or to security.keys",
            )
        return [Principal(key.username, key.groups, key.key_sha256) for key in security.keys]
    token_file = token_path(settings)
    assert token_file is not None
    token = ensure_token(token_file) if security.auth == "auto" else read_token(token_file)
    # In no group: client files carry this token, so it must not administer anything.
    return [Principal("owner", (), key_hash(token))]


def token_path(settings: CoreSettings) -> Path | None:
    """The file that contains the token, in the modes that use one."""
    if settings.security.auth == "auto":
        return settings.state_path() / "secret.token"
    if settings.security.auth.startswith("file:"):
        return Path(os.path.expanduser(settings.security.auth.removeprefix("file:")))
    return None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
