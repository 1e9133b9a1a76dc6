"""One server as a file of servers has it: its keys, what each may hold, and mistakes told with their place."""

from __future__ import annotations

import difflib
import re
from typing import Any, Final, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import ErrorDetails

from armarium.foundation.schema import type_in_words

AuthMode = Literal["username", "api_key", "bearer", "oauth", "capability", "none"]
AUTH_MODES: Final[tuple[str, ...]] = get_args(AuthMode)
OPEN_MODES: Final = frozenset({"username", "none"})
"""Those that ask nothing of a caller besides their name."""

SERVER_NAME = r"[A-Za-z][A-Za-z0-9_-]{0,63}"
ADDRESS: Final = r"[hH][tT][tT][pP][sS]?://(\[[0-9A-Fa-f:.]+\]|[^\s/?#@:\[\]\\]+)(:[0-9]{0,5})?([/?#]\S*)?"
"""Of a server: a host, perhaps a port, and nobody who logs in."""
_NAME = re.compile(SERVER_NAME)
_LONGEST_ID = 512
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
    "json_invalid": "has something in it that is no text",
}
"""What each of pydantic's rules asks for, in the words that arguments of tools are refused with."""


class _Entry(BaseModel):
    # In code the Python names; `checked_entry` takes a file's names only.
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True)


class UiHints(_Entry):
    """How a user interface shows a server."""

    icon: str | None = None
    """Name of an icon."""
    order: int = 0
    """Servers with a lower one come first."""
    display_name: str | None = Field(default=None, alias="displayName")
    """What people read; by default the server's name."""
    default_selected: bool = Field(default=False, alias="defaultSelected")
    """Whether the server is chosen until somebody decides."""


class DataSource(_Entry):
    """A hint about one source of a server; the server itself has the last word about what it offers."""

    id: str = Field(min_length=1, max_length=_LONGEST_ID)
    """The id the server gives it."""
    name: str | None = None
    """What people read; by default the id."""
    groups: tuple[str, ...] = ()
    """Only members of one of these may use it; empty leaves it to the server's own groups."""
    auth_mode: AuthMode = Field(default="none", alias="authMode")
    """What a caller must bring besides their name."""
    scopes: tuple[str, ...] = ()
    """What a token for it must allow."""
    default_selected: bool = Field(default=False, alias="defaultSelected")
    """Whether the source is chosen until somebody decides."""


class Timeouts(_Entry):
    """How long this server may take; what is left out has the gateway's own limit."""

    call_s: float | None = Field(default=None, gt=0)
    """Seconds for one call."""
    connect_s: float | None = Field(default=None, gt=0)
    """Seconds until a connection stands, including the start of its process."""


class ServerEntry(_Entry):
    """One server: who may see it, what it shows, and how to reach it."""

    groups: tuple[str, ...] = ()
    """Only members of one of these see it; empty is everybody."""
    is_exclusive: bool = False
    """Whether it is hidden from everybody who is in none of its groups, even when it has none."""
    description: str = ""
    """What it is for, in a sentence."""
    enabled: bool = True
    """Whether it is used; a server that is not may be described without saying how to reach it."""
    ui: UiHints = UiHints()
    data_sources: tuple[DataSource, ...] = Field(
        default=(), alias="dataSources", json_schema_extra={"uniqueItems": True}
    )
    """Hints about its sources."""
    type: Literal["stdio", "http"] | None = None
    """Told by `command` or `url` when left out."""
    command: str | None = Field(default=None, min_length=1)
    """Program to start; it speaks MCP on its standard input and output."""
    args: tuple[str, ...] = ()
    """Arguments of the program."""
    env: dict[str, str] = {}
    """Variables of the program's environment; `${NAME}` is filled from ours."""
    cwd: str | None = None
    """Directory the program starts in."""
    url: str | None = Field(default=None, json_schema_extra={"pattern": f"^{ADDRESS}$"})
    """Address that speaks streamable HTTP."""
    headers: dict[str, str] = {}
    """Headers of every request; `${NAME}` is filled from the environment."""
    timeouts: Timeouts = Timeouts()

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        try:
            parts = urlsplit(url)
            usable = (
                parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
            )
        except ValueError:
            usable = False
            parts = None
        if usable and parts is not None and "@" in parts.netloc:
            raise ValueError("must not hold a name or password; use `headers`")
        if not usable or not re.fullmatch(ADDRESS, url):
            raise ValueError("must be an http:// or https:// address")
        return url

    @field_validator("data_sources")
    @classmethod
    def _each_source_once(cls, sources: tuple[DataSource, ...]) -> tuple[DataSource, ...]:
        ids = [source.id for source in sources]
        for source_id in ids:
            if ids.count(source_id) > 1:
                raise ValueError(f"has the id {source_id[:80]!r} more than once")
        return sources

    @model_validator(mode="after")
    def _is_reached_one_way(self) -> Self:
        if self.command is not None and self.url is not None:
            raise ValueError("has both `command` and `url`; a server is reached one way")
        if self.enabled and self.command is None and self.url is None:
            raise ValueError("says neither `command` nor `url`; only a server with `enabled: false` may leave both out")
        if (self.type == "stdio" and self.url is not None) or (self.type == "http" and self.command is not None):
            raise ValueError(f"is of type {self.type}, which goes with {'command' if self.type == 'stdio' else 'url'}")
        if self.command is None and (self.args or self.env or self.cwd is not None):
            raise ValueError("has `args`, `env` or `cwd` without a `command`")
        if self.url is None and self.headers:
            raise ValueError("has `headers` without a `url`")
        return self


def mapping_problem(name: str, value: object, *, reserved: str) -> str | None:
    """What keeps a name or the kind of its value from being looked at further."""
    if not _NAME.fullmatch(name):
        return f"`{name[:80]}` cannot name a server: a letter, then letters, digits, `_` and `-`, 64 at most"
    if name == reserved:
        return f"`{name}` is the name of our own sources; give the server another"
    if not isinstance(value, dict):
        return f"`{name}` must be an object, not {type_in_words(value)}"
    return None


def in_words(name: str, mistake: ErrorDetails) -> str:
    """A mistake as a sentence with its place, and the name that was probably meant."""
    place = _place(name, mistake["loc"])
    if mistake["type"] == "extra_forbidden":
        return f"`{place}` is not a key here; {_nearest(mistake['loc'])}"
    if mistake["type"] in _RULES:
        return f"`{place}` {_RULES[mistake['type']].format_map(mistake.get('ctx', {}))}"
    return f"`{place}`: {mistake['msg'].removeprefix('Value error, ')}"


def _place(name: str, steps: tuple[int | str, ...]) -> str:
    return name + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _nearest(steps: tuple[int | str, ...]) -> str:
    model: type[BaseModel] = ServerEntry
    *parents, unknown = steps
    for step in parents:
        if isinstance(step, str):
            model = next((_model_within(found.annotation) for key, found in _keys(model) if key == step), None) or model
    known = [key for key, _ in _keys(model)]
    near = difflib.get_close_matches(str(unknown), known, n=1)
    return f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}"


def _keys(model: type[BaseModel]) -> list[tuple[str, Any]]:
    return [(found.alias or name, found) for name, found in model.model_fields.items()]


def _model_within(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_within(part))), None)
