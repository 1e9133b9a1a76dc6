"""The connection of clients to the server: the bearer token, and the URL, as text, as an event, and as a file."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import orjson

from armarium.capabilities.corpus.commands.settings_loader import LoadedSettings
from armarium.capabilities.corpus.index.ownership import TOKEN_FILE
from armarium.capabilities.corpus.settings import PROTOCOL_VERSION
from armarium.command_line.addresses import local_address, remote_address
from armarium.command_line.output import say
from armarium.foundation.errors import ConfigError
from armarium.foundation.files.state_files import replace_file
from armarium.foundation.security.identity import Authenticator, Principal, key_hash, read_token
from armarium.foundation.security.network import is_loopback
from armarium.foundation.security.ownership import ensure_own_token

TokenSourceKind = Literal["secret.token", "env", "keychain", "file", "none"]
_NAMED = ("env", "keychain")
_TRANSPORT = "mcp_streamable_http"
_SESSION_HEADER = "MCP-Session-Id"


@dataclass(frozen=True, slots=True)
class TokenSource:
    """The source of the token that clients must send."""

    kind: TokenSourceKind
    place: str
    """The file, the variable or the keychain service with the token."""
    by_flag: bool = False
    """Whether a flag selected it instead of a setting."""
    token: str | None = field(default=None, repr=False)
    """The token, if it is not in a file."""

    @property
    def auth_setting(self) -> str:
        """The value for the server's setting `security.auth`."""
        if self.kind == "file":
            return f"file:{self.place}"
        return "none" if self.kind == "none" else "auto"


def choose_token_source(loaded: LoadedSettings, environ: Mapping[str, str], *, chosen_by_flag: bool) -> TokenSource:
    """Select the source of the token. A flag overrides the environment, which overrides a keychain that is the
    provider of secrets, which overrides the settings file."""
    auth = loaded.settings.security.auth
    if auth.mode == "file" and not auth.token_file:
        raise ConfigError("security.auth.mode is file, but token_file is not set", hint="set security.auth.token_file")
    uses_file = auth.mode == "file" or (auth.mode == "auto" and bool(auth.token_file))
    flag_decides = chosen_by_flag and (uses_file or auth.mode == "none")
    if not flag_decides and (token := environ.get(auth.token_env)):
        return TokenSource("env", auth.token_env, token=token)
    if not flag_decides and auth.mode != "none" and loaded.settings.secrets.provider == "keychain":
        # A locked keychain must not let another token in.
        found = loaded.secrets.find(auth.token_env, ask_keychain=True)
        if found is not None:
            return TokenSource("keychain", found.place, token=found.value)
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


def create_authenticator(token_source: TokenSource) -> Authenticator:
    """The authenticator for the token, which is generated if necessary."""
    match token_source.kind:
        case "none":
            return Authenticator((), open_to_anyone=True)
        case "env" | "keychain":
            token = (token_source.token or "").strip()
            if not token:
                raise ConfigError(f"the token in {token_source.place} is empty", hint="set it to a long random string")
        case "file":
            token = read_token(Path(token_source.place))
        case "secret.token":
            token, replaced = ensure_own_token(Path(token_source.place))
            if replaced:
                say(f"the token in {token_source.place} was not generated here; there is a new one, for all clients")
    return Authenticator((Principal("owner", (), key_hash(token)),))


def readable_by_others(token_source: TokenSource) -> bool:
    """Whether other users can read the user's token file."""
    return token_source.kind == "file" and bool(stat.S_IMODE(Path(token_source.place).stat().st_mode) & 0o077)


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """The URL of a running server, and the source of its token."""

    url: str
    token_source: TokenSource
    local_url: str | None = None
    """The URL on this machine, if `url` is for other machines."""

    @classmethod
    def to(cls, address: str, path: str, token_source: TokenSource) -> Self:
        """The connection to the server that listens on the address."""
        here, elsewhere = local_address(address), remote_address(address)
        return cls(f"{elsewhere}{path}", token_source, f"{here}{path}" if here != elsewhere else None)

    def event(self) -> dict[str, Any]:
        """The `data` of the `connection` event. It never contains the token."""
        kind, place = self.token_source.kind, self.token_source.place
        described = self._addresses() | {"headers": self._headers("<token>"), "token_source": kind}
        if kind in ("secret.token", "file"):
            described["token_file"] = place
        if kind == "env":
            described["token_source_details"] = {"variable": place}
        if kind == "keychain":
            described["token_source_details"] = {"service": place}
        return described

    def write(self, state_dir: Path) -> None:
        """Write `connection.json`, for other programs."""
        kind, place = self.token_source.kind, self.token_source.place
        described = self._addresses() | {
            "headers": self._headers(f"<token-from-{kind}:{place}>" if kind in _NAMED else f"<token-from-{kind}>"),
            "session": {"uses_mcp_session_id": True, "header_name": _SESSION_HEADER, "assigned_on_initialize": True},
        }
        replace_file(state_dir / "connection.json", orjson.dumps(described, option=orjson.OPT_INDENT_2) + b"\n")

    def lines(self) -> Iterator[str]:
        yield "MCP endpoint:"
        yield f"  URL:    {self.url}"
        if self.local_url is not None:
            yield f"  Local:  {self.local_url}"
        yield f"  Auth:   {self._auth()}"
        yield "  Headers:"
        for name, value in self._headers("<token>").items():
            yield f"    {name}: {value}"
        yield f"    {_SESSION_HEADER}: (assigned after initialize response)"

    def _auth(self) -> str:
        kind, place = self.token_source.kind, self.token_source.place
        if kind == "none":
            return "none (any user of this machine can connect)"
        if kind == "file":
            place = f"--auth file:{place}" if self.token_source.by_flag else f"security.auth.token_file: {place}"
        return f"Bearer (source={kind}, from {place})"

    def _addresses(self) -> dict[str, Any]:
        known = {"transport": _TRANSPORT, "url": self.url}
        return known if self.local_url is None else known | {"local_url": self.local_url}

    def _headers(self, token: str) -> dict[str, str]:
        headers = {"MCP-Protocol-Version": PROTOCOL_VERSION}
        if self.token_source.kind != "none":
            headers["Authorization"] = f"Bearer {token}"
        return headers
