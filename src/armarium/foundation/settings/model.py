"""The settings that every server has, and the base class for the sections of capabilities."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    PlainSerializer,
    PrivateAttr,
    field_validator,
    model_validator,
)

from armarium.foundation.files.state_files import user_state_directory
from armarium.foundation.security.access import READ, WRITE, AccessRule

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Section(BaseModel):
    """A section of the settings. Field docstrings become the reference page."""

    from_file_only: ClassVar[bool] = False
    """Whether environment variables cannot set this section."""
    known_as: ClassVar[Mapping[str, str]] = {}
    """Dotted names in other documents of this section ("") or of sections in it. A settings file may use them."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    _files: tuple[Path, ...] = PrivateAttr(default=())
    _renamed: Mapping[str, str] = PrivateAttr(default_factory=dict[str, str])

    @property
    def renamed(self) -> Mapping[str, str]:
        """Our names of the settings that the file has under other names, by those names."""
        return self._renamed

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that the settings come from, as absolute paths."""
        return self._files

    def read_from(self, *files: Path | None) -> Self:
        # A relative path must mean the same file after a change of the working directory.
        self._files = tuple(Path(os.path.abspath(file)) for file in files if file is not None)
        return self

    def with_renamed(self, renamed: Mapping[str, str]) -> Self:
        self._renamed = renamed
        return self


Groups = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
"""Names of groups. An empty list is an error: it would not say whether nobody is meant or everybody."""


class RestrictedSection(Section):
    """A section that can name the groups of callers whose members may use what it describes."""

    roles: ClassVar[tuple[str, ...]] = (READ, WRITE)
    """What `access` may name."""

    groups: Groups | None = None
    """The groups whose members may use it. By default every caller may."""
    access: dict[str, Groups] = Field(default_factory=dict[str, Groups])
    """Further groups by role, such as `write`. A caller must be in one of these, too, to use it in that role."""

    @field_validator("access")
    @classmethod
    def _known_roles(cls, access: dict[str, Groups]) -> dict[str, Groups]:
        for role in access:
            if role not in cls.roles:
                raise ValueError(f"unknown role {role!r}; known here: {', '.join(cls.roles)}")
        return access

    @property
    def rule(self) -> AccessRule:
        """The groups as a rule."""
        return AccessRule(
            frozenset(self.groups or ()), {role: frozenset(groups) for role, groups in self.access.items()}
        )

    def rules(self) -> Iterable[tuple[str, AccessRule]]:
        """Every rule of the section, with what it is about: "" is the capability."""
        return [("", self.rule)]


def _seconds(value: object) -> object:
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", value.strip())):
        return float(match[1]) * _UNITS_S[match[2]]
    return None if value == "off" or value is False else value


def written_duration(seconds: float | None) -> str:
    """A duration in the format of settings files."""
    if seconds is None:
        return "off"
    for unit, size in reversed(_UNITS_S.items()):
        # One day is written as 24h.
        if seconds % size == 0 and seconds >= (2 * size if unit == "d" else size):
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


Duration = Annotated[
    Annotated[float, Field(gt=0)] | None,
    BeforeValidator(_seconds),
    PlainSerializer(written_duration),
    Field(json_schema_extra={"x-form": "a duration such as 90s, 30m, 24h, 7d, or off"}),
]


_HOST_NAME = re.compile(r"(\*\.)?[A-Za-z0-9._:-]+")


def _network_rule(value: object) -> object:
    if isinstance(value, bool):
        # YAML reads a bare on or off as a boolean.
        return "on" if value else "off"
    if value in ("on", "off"):
        return value
    # A variable of the environment has the hosts as one text.
    hosts: object = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(hosts, Sequence) or not all(map(_is_host, hosts)):  # pyright: ignore[reportUnknownArgumentType] any YAML
        raise ValueError("expected on, off or a list of hosts such as [api.openai.com, '*.example.org']")
    return hosts  # pyright: ignore[reportUnknownVariableType] any YAML


def _is_host(value: object) -> bool:
    return isinstance(value, str) and _HOST_NAME.fullmatch(value) is not None


NetworkRule = Annotated[Literal["on", "off"] | tuple[str, ...], BeforeValidator(_network_rule)]


class TlsSettings(Section):
    """Encryption of HTTP. A running server uses changed files from the next connection on."""

    certificate: str | None = None
    """PEM file with the certificate, followed by its chain. Requires `key`."""
    key: str | None = None
    """PEM file with the private key, without a passphrase. Requires `certificate`."""

    @model_validator(mode="after")
    def _require_both(self) -> Self:
        if (self.certificate is None) is not (self.key is None):
            raise ValueError("a certificate requires a key, and a key a certificate")
        return self


class ServerSettings(Section):
    """Where the server listens and which requests it accepts."""

    host: str = "127.0.0.1"
    """Address to listen on. A public address requires `security.auth` other than `none`."""
    port: int = Field(default=8091, ge=0, le=65535)
    """Port to listen on; 0 selects a free port."""
    allowed_origins: tuple[str, ...] = ()
    """Browser origins that may send requests, in addition to the server's own loopback addresses."""
    allowed_hosts: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9._:\[\]-]+$")], ...] = ()
    """Host names by which clients may address the server, such as `files.example.org`, in addition to loopback names.
    Behind a proxy, list the public name. By default, a server on a loopback address answers to loopback names only, and
    a server on another address to every name."""
    trusted_proxies: tuple[IPvAnyNetwork, ...] = ()
    """Addresses or networks of proxies in front of the server. Only their `Forwarded`, `X-Forwarded-For` and
    `X-Forwarded-Proto` headers count. A proxy must pass on the `Host` header."""
    tls: TlsSettings = TlsSettings()
    max_body_bytes: int = Field(default=16 * 1024 * 1024, gt=0)
    """Maximum size of a request body in bytes. Larger requests fail with 413 before they are parsed."""
    shutdown_grace: Duration = 4.0
    """How long calls in progress may take to finish when the server stops."""


class KeySettings(Section):
    """A caller and the SHA-256 of their key."""

    username: str = Field(min_length=1)
    """Name of the caller in the audit log and in access rules."""
    groups: tuple[str, ...] = ()
    """Groups of the caller."""
    key_sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """Hexadecimal SHA-256 of the key, as printed by `printf %s KEY | sha256sum`."""


class SecuritySettings(Section):
    """Who may call."""

    auth: str = Field(default="auto", pattern=r"^(auto|none|keys|file:.+)$")
    """`auto`: one token, generated at the first start; `file:<path>`: the token in that file; `keys`: the list `keys`;
    `none`: no authentication, on a loopback address only."""
    keys: tuple[KeySettings, ...] = ()
    """Callers and their keys, for `auth: keys`. `armarium keys` adds further ones, in every mode except `none`."""
    hide_credentials: bool | tuple[str, ...] = True
    """Whether to hide the content of files whose name says that they hold credentials, such as `.env` and `*.pem`, from
    every tool. A list has further patterns in .gitignore syntax; `!` shows a file again: `!**/ca.pem`."""
    metrics_groups: Groups = ("metrics", "admin")
    """Groups that may read `/metrics`. With `auth: none` everyone may."""
    admin_groups: Groups = ("admin",)
    """Groups that may manage keys, and read the settings and checks of the server, over HTTP. The gateway has its own
    administrators: `gateway.admin_group`."""
    audit_groups: Groups = ("admin",)
    """Groups that may list the calls of all callers with `GET /api/audit`. Everyone may list their own."""


class SessionSettings(Section):
    """How long MCP sessions last."""

    inactivity_timeout: Duration = 24 * 3600.0
    """How long a session may be unused before it is closed."""
    max_lifetime: Duration = None
    """Maximum age of a session, even if it is in use; unlimited by default."""
    max_sessions: int = Field(default=10_000, gt=0)
    """Maximum number of open sessions. A new session above the limit closes the longest idle session of the caller with
    the most sessions. If none is idle, the new session fails with 503."""
    max_sessions_per_caller: int = Field(default=1000, gt=0)
    """Maximum number of sessions of one caller. A new session above the limit closes their longest idle session. If
    none is idle, the new session fails with 429. Without keys, all callers from one address count as one."""


class ConsoleSettings(Section):
    """The web console at `/console`."""

    enabled: bool = True
    """Whether the server offers the console."""
    inactivity_timeout: Duration = 12 * 3600.0
    """How long a logged-in browser may be idle before it must log in again."""
    max_lifetime: Duration = 7 * 24 * 3600.0
    """How long a browser stays logged in at most, even if it is in use."""


class LimitSettings(Section):
    """Limits for a call, and for all concurrent calls of one caller. A caller is a key; without keys a session, or an
    address if there is no session; over stdio the process."""

    call_timeout: Duration = 330.0
    """Maximum duration of a call, unless its tool allows more. A longer call fails with DEADLINE_EXCEEDED."""
    max_argument_values: int = Field(default=200_000, gt=0)
    """Maximum number of values in the arguments of a call, at any depth. A larger HTTP body is rejected before it is
    parsed."""
    max_argument_depth: int = Field(default=64, gt=0, le=500)
    """Maximum nesting depth of the arguments of a call."""
    max_response_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    """Maximum size of a result as JSON, in bytes. A larger one fails with RESPONSE_TOO_LARGE."""
    calls_in_flight: int = Field(default=256, gt=0)
    """Maximum number of concurrent calls of one caller. More fail with TOO_MANY_CALLS, over plain HTTP with 429."""
    searches_in_flight: int = Field(default=16, gt=0)
    """Maximum number of concurrent searches of one caller. More are queued, within their `call_timeout`."""
    response_bytes_in_flight: int = Field(default=64 * 1024 * 1024, gt=0)
    """Maximum number of bytes of large results of one caller in memory. More are queued; if the queue holds eight times
    as much, further calls fail with TOO_MANY_CALLS."""
    total_response_bytes_in_flight: int = Field(default=256 * 1024 * 1024, gt=0)
    """The same limit for all callers together."""
    request_bytes_in_flight: int = Field(default=64 * 1024 * 1024, gt=0)
    """Maximum number of bytes of large HTTP bodies of one caller in memory. More wait, and fail with 429 after 30
    seconds."""
    total_request_bytes_in_flight: int = Field(default=256 * 1024 * 1024, gt=0)
    """The same limit for all callers together."""
    requests_per_second: Annotated[float, Field(gt=0)] | None = 500.0
    """Rate limit for HTTP requests of one caller, in requests per second on average. A request above the limit waits up
    to a second or fails with 429. `null` means unlimited."""
    request_burst: int = Field(default=2000, gt=0)
    """Number of requests that a caller may send at once before the rate limit applies."""


class PipeSettings(Section):
    """The tool `mcp_pipe`, which runs several tools in one call."""

    known_as: ClassVar[Mapping[str, str]] = {"settings.mcp.tools.mcp_pipe": ""}

    enabled: bool = True
    """Whether the tool is offered."""
    max_steps: int = Field(default=50, gt=0, le=10_000)
    """Maximum number of steps of one pipe, with those of groups, nested pipes and every round of a `foreach`."""
    max_depth: int = Field(default=5, gt=0, le=20)
    """Maximum number of levels of nested pipes and groups."""
    max_concurrent: int = Field(default=8, gt=0)
    """Maximum number of tools that one pipe runs at the same time."""
    max_result_bytes: int = Field(default=8 * 1024 * 1024, gt=0)
    """Maximum size of what one pipe keeps, in characters: the results of its steps, of nested pipes and of `return`,
    and the variables and lists that references make. Each value counts 32 characters besides its text. All references
    together may yield eight times as much."""


class AuditSettings(Section):
    """The audit log."""

    file: str | None = None
    """Path of the SQLite file; by default `audit.sqlite` in the state directory."""
    enabled: bool = True
    """Whether to record calls in the audit log. The structured log always has them."""
    retention_days: int | None = Field(default=None, gt=0)
    """Maximum age of records in days. Older ones are removed when the server starts; unlimited by default."""


class TelemetrySettings(Section):
    """Logs and traces."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level of messages written to standard error."""
    otlp_endpoint: str | None = None
    """OTLP/HTTP endpoint for traces, e.g. http://127.0.0.1:4318/v1/traces. Requires the `otel` extra."""


class CoreSettings(Section):
    """The settings of every server. Each capability adds a section."""

    state_dir: str = "~/.local/state/armarium"
    """Directory for the token, the audit log and other state."""
    network: NetworkRule = "on"
    """Hosts to which the server may connect: `on` for all, `off` for none, or a list such as `[api.mistral.ai]` or
    `["*.example.org"]`. It covers hosted models, rerankers, servers behind the gateway and traces. This machine is
    always permitted. Programs that the gateway starts, and the store's database and Redis, are not covered."""
    server: ServerSettings = ServerSettings()
    security: SecuritySettings = SecuritySettings()
    sessions: SessionSettings = SessionSettings()
    console: ConsoleSettings = ConsoleSettings()
    limits: LimitSettings = LimitSettings()
    pipe: PipeSettings = PipeSettings()
    audit: AuditSettings = AuditSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    def state_path(self) -> Path:
        """The state directory with `~` and XDG_STATE_HOME applied."""
        if "state_dir" not in self.model_fields_set:
            return user_state_directory()
        return Path(self.state_dir).expanduser()

    def keys_file(self) -> Path:
        """The file of the keys that `armarium keys` manages."""
        return self.state_path() / "keys.json"

    def audit_file(self) -> Path:
        """The file of the audit log."""
        return Path(self.audit.file).expanduser() if self.audit.file else self.state_path() / "audit.sqlite"
