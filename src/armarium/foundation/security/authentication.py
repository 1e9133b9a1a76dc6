"""Determines from the settings who may call the server."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from armarium.foundation.errors import ConfigError
from armarium.foundation.security.identity import ANYONE, Authenticator, Principal, ensure_token, key_hash, read_token
from armarium.foundation.security.keys import KeyFile, LiveKeys
from armarium.foundation.security.network import is_loopback
from armarium.foundation.settings.file_secrets import FileSecret
from armarium.foundation.settings.model import CoreSettings


def open_authenticator(settings: CoreSettings) -> Authenticator:
    """The authenticator for `security.auth`. Creates the token file if the mode is `auto` and there is none."""
    if settings.security.auth == "none":
        if not is_loopback(settings.server.host):
            raise ConfigError(
                f"security.auth is none, but the server would listen on {settings.server.host}",
                hint="use auth: auto, file:<path> or keys, or listen on 127.0.0.1",
            )
        return Authenticator((), open_to_anyone=True)
    keys, token_file = LiveKeys(settings.keys_file()), token_path(settings)
    if token_file is None:
        return Authenticator(principals(settings), further=keys.valid)
    if settings.security.auth == "auto":
        listed = principals(settings)
        return Authenticator(listed, further=keys.valid, owner=lambda: _owner(listed[0]))
    token = FileSecret("security.auth", token_file, read_token)
    return Authenticator(
        (),
        further=lambda: [_of_token(token.get_secret_value()), *keys.valid()],
        owner=lambda: _owner(_of_token(token.get_secret_value())[1]),
    )


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
    return [_of_token(token)[1]]


def _of_token(token: str) -> tuple[str, Principal]:
    # In no group: client files carry this token, so it must not administer anything.
    sha256 = key_hash(token)
    return sha256, Principal("token", (), sha256)


def _owner(of_token: Principal) -> Principal:
    """The user who runs the server. Their files in the store are those of the token."""
    return replace(of_token, username="owner", is_owner=True)


def token_path(settings: CoreSettings) -> Path | None:
    """The file that contains the token, in the modes that use one."""
    if settings.security.auth == "auto":
        return settings.state_path() / "secret.token"
    if settings.security.auth.startswith("file:"):
        return Path(os.path.expanduser(settings.security.auth.removeprefix("file:")))
    return None
