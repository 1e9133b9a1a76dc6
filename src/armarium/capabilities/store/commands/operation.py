"""What the commands of the store share: the settings, the caller they act for, and the call through the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from armarium.capabilities.store.settings import StoreSettings
from armarium.command_line.host import CommandHost
from armarium.command_line.output import Misuse
from armarium.foundation.errors import ConfigError
from armarium.foundation.schema import Json
from armarium.foundation.security.authentication import principals, token_path
from armarium.foundation.security.identity import LOCAL, Authenticator, Principal, read_token
from armarium.foundation.settings.model import CoreSettings
from armarium.foundation.tools import Call, ToolSpec


@dataclass(frozen=True, slots=True)
class Operation:
    """A command on the store that the settings describe."""

    host: CommandHost
    settings: CoreSettings
    section: StoreSettings
    as_json: bool

    @property
    def state_dir(self) -> Path:
        return self.settings.state_path()

    def call(self, tool: ToolSpec, arguments: Mapping[str, Any], caller: Call | None = None) -> Json:
        """Run a tool, by default as the local owner."""
        run = partial(self.host.call, "store", tool, arguments, settings=self.settings, call=caller)
        return anyio.run(run, backend_options={"use_uvloop": True})

    def caller(self, user: str | None, key_file: Path | None) -> Call:
        """The caller with the key in a file, or with a name in the settings, or the owner of the server's token."""
        known = principals(self.settings)
        if user is not None and key_file is not None:
            raise Misuse("--user and --key-file exclude each other", hint="a key determines its owner")
        if key_file is not None:
            return self._owner_of(read_token(key_file), known)
        if user is None:
            own_token = token_path(self.settings)
            if own_token is not None:
                return self._owner_of(read_token(own_token), known)
            if self.settings.security.auth == "none":
                return Call(known[0])
            raise Misuse("there are several callers", hint="choose one with --user or --key-file")
        named = [principal for principal in known if principal.username == user]
        if not named and user == LOCAL.username:
            return Call(LOCAL)
        if not named:
            raise ConfigError("no caller with this name is configured", hint="see security.keys")
        if len(named) > 1:
            raise Misuse("this user has several keys, each with files of its own", hint="choose one with --key-file")
        return Call(named[0])

    def _owner_of(self, key: str, known: list[Principal]) -> Call:
        principal = Authenticator(known, open_to_anyone=self.settings.security.auth == "none").identify(key)
        if principal is None:
            raise ConfigError("no caller with this key is configured", hint="see security.keys")
        return Call(principal, credential=key)
