"""The entry of one server in a configuration file: its keys, their validation, and messages for mistakes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import ErrorDetails

AuthMode = Literal["username", "api_key", "bearer", "oauth", "capability", "none"]
AUTH_MODES: Final[tuple[str, ...]] = get_args(AuthMode)
OPEN_MODES: Final = frozenset({"username", "none"})
"""Modes that require no secret of the caller."""

SERVER_NAME = r"[A-Za-z][A-Za-z0-9_-]{0,63}"
ADDRESS: Final = r"[hH][tT][tT][pP][sS]?://(\[[0-9A-Fa-f:.]+\]|[^\s/?#@:\[\]\\]+)(:[0-9]{0,5})?([/?#]\S*)?"
"""The pattern of a server's URL: a host and an optional port, without credentials."""
_MAX_ID_LENGTH = 512
_RULES = {
    "missing": "is required",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt:g}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "json_invalid": "contains characters that are not valid text",
}
"""Messages for pydantic's error types, with the same wording as for tool arguments."""


class _Entry(BaseModel):
    # In code the Python names; `parse_entry` accepts only the names of the file format.
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True)


class UiHints(_Entry):
    """How a user interface shows a server."""

    icon: str | None = None
    """Name of an icon."""
    order: int = 0
    """Servers are sorted by it in ascending order."""
    display_name: str | None = Field(default=None, alias="displayName")
    """The name to display; by default the server's name."""
    default_selected: bool = Field(default=False, alias="defaultSelected")
    """Whether the server is selected by default."""


class DataSource(_Entry):
    """A hint about one source of a server. The server's own list of sources is authoritative."""

    id: str = Field(min_length=1, max_length=_MAX_ID_LENGTH)
    """The server's id of the source."""
    name: str | None = None
    """The name to display; by default the id."""
    groups: tuple[str, ...] = ()
    """Only members of one of these groups may use it; empty means no further restriction."""
    auth_mode: AuthMode = Field(default="none", alias="authMode")
    """The secret that a caller must provide."""
    scopes: tuple[str, ...] = ()
    """The scopes that a token must have."""
    default_selected: bool = Field(default=False, alias="defaultSelected")
    """Whether the source is selected by default."""


class Timeouts(_Entry):
    """Timeouts of this server; by default the gateway's limits."""

    call_s: float | None = Field(default=None, gt=0)
    """Seconds for one call."""
    connect_s: float | None = Field(default=None, gt=0)
    """Seconds for opening a connection, including the start of the process."""


class ServerEntry(_Entry):
    """A server: who may see it, how it is displayed, and how to reach it."""

    groups: tuple[str, ...] = ()
    """Only members of one of these groups see it; empty means all callers."""
    is_exclusive: bool = False
    """Whether no other server's tools run in a session in which it is selected."""
    description: str = ""
    """Its purpose in one sentence."""
    enabled: bool = True
    """Whether it is used. A disabled server needs neither `command` nor `url`."""
    ui: UiHints = UiHints()
    data_sources: tuple[DataSource, ...] = Field(
        default=(), alias="dataSources", json_schema_extra={"uniqueItems": True}
    )
    """Hints about its sources."""
    type: Literal["stdio", "http"] | None = None
    """The transport; by default determined by `command` or `url`."""
    command: str | None = Field(default=None, min_length=1)
    """The program to start. It must speak MCP on its standard input and output."""
    args: tuple[str, ...] = ()
    """Arguments of the program."""
    env: dict[str, str] = {}
    """Environment variables of the program. `${NAME}` is replaced by a variable of the gateway's environment."""
    cwd: str | None = None
    """The working directory of the program."""
    url: str | None = Field(default=None, json_schema_extra={"pattern": f"^{ADDRESS}$"})
    """The URL of a server with streamable HTTP."""
    headers: dict[str, str] = {}
    """Headers of every request. `${NAME}` is replaced by an environment variable."""
    username_parameter: str | None = Field(default=None, alias="usernameParameter", min_length=1, max_length=128)
    """The parameter with which its tools receive the caller's name, if it is neither `username` nor `_atlas_user`."""
    timeouts: Timeouts = Timeouts()

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        invalid = ValueError("must be an http:// or https:// URL")
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            raise invalid from None
        if usable and "@" in parts.netloc:
            raise ValueError("must not contain a user name or password; use `headers`")
        if not usable or not re.fullmatch(ADDRESS, url):
            raise invalid
        return url

    @field_validator("data_sources")
    @classmethod
    def _check_unique_sources(cls, sources: tuple[DataSource, ...]) -> tuple[DataSource, ...]:
        ids = [source.id for source in sources]
        for source_id in ids:
            if ids.count(source_id) > 1:
                raise ValueError(f"has the id {source_id[:80]!r} more than once")
        return sources

    @model_validator(mode="after")
    def _check_transport(self) -> Self:
        if self.command is not None and self.url is not None:
            raise ValueError("has both `command` and `url`; use one of them")
        if self.enabled and self.command is None and self.url is None:
            raise ValueError("has neither `command` nor `url`; only a server with `enabled: false` may omit both")
        if (self.type == "stdio" and self.url is not None) or (self.type == "http" and self.command is not None):
            raise ValueError(f"is of type {self.type}, which requires {'command' if self.type == 'stdio' else 'url'}")
        if self.command is None and (self.args or self.env or self.cwd is not None):
            raise ValueError("has `args`, `env` or `cwd` without a `command`")
        if self.url is None and self.headers:
            raise ValueError("has `headers` without a `url`")
        return self


_NESTED: Final[Mapping[int | str, type[BaseModel]]] = {"ui": UiHints, "dataSources": DataSource, "timeouts": Timeouts}


def describe_mistake(name: str, mistake: ErrorDetails) -> str:
    """A mistake as a sentence with its location, and the probable correct name."""
    location = name + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in mistake["loc"])
    if mistake["type"] == "extra_forbidden":
        return f"`{location}` is not a known key; {_nearest(mistake['loc'])}"
    if mistake["type"] in _RULES:
        return f"`{location}` {_RULES[mistake['type']].format_map(mistake.get('ctx', {}))}"
    return f"`{location}`: {mistake['msg'].removeprefix('Value error, ')}"


def _nearest(steps: tuple[int | str, ...]) -> str:
    *parents, unknown = steps
    model = _NESTED[parents[0]] if parents else ServerEntry
    known = [found.alias or name for name, found in model.model_fields.items()]
    near = difflib.get_close_matches(str(unknown), known, n=1)
    return f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}"
