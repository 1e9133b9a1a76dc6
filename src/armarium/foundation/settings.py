"""The settings that every server has, and the base class for the sections of capabilities."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Section(BaseModel):
    """A section of the settings. Field docstrings become the reference page."""

    from_file_only: ClassVar[bool] = False
    """Whether environment variables cannot set this section."""
    known_as: ClassVar[str | None] = None
    """The dotted name of this section in other documents. Errors about that name refer to this section."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


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


class ServerSettings(Section):
    """Where the server listens and which requests it accepts."""

    host: str = "127.0.0.1"
    """Address to listen on. A public address requires `security.auth` other than `none`."""
    port: int = Field(default=8091, ge=0, le=65535)
    """Port to listen on; 0 selects a free port."""
    allowed_origins: tuple[str, ...] = ()
    """Browser origins that may send requests, in addition to the server's own loopback addresses."""
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
    metrics_groups: tuple[str, ...] = ("metrics", "admin")
    """Groups that may read `/metrics`. With `auth: none` everyone may."""


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

    enabled: bool = True
    """Whether the tool is offered."""
    max_steps: int = Field(default=50, gt=0, le=10_000)
    """Maximum number of steps of one pipe, with those of groups, nested pipes and every round of a `foreach`."""
    max_depth: int = Field(default=5, gt=0, le=20)
    """Maximum number of levels of nested pipes and groups."""
    max_concurrent: int = Field(default=8, gt=0)
    """Maximum number of tools that one pipe runs at the same time."""
    max_result_bytes: int = Field(default=8 * 1024 * 1024, gt=0)
    """Maximum size of the results of all steps of one pipe, in characters."""


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
    server: ServerSettings = ServerSettings()
    security: SecuritySettings = SecuritySettings()
    sessions: SessionSettings = SessionSettings()
    limits: LimitSettings = LimitSettings()
    pipe: PipeSettings = PipeSettings()
    audit: AuditSettings = AuditSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    def state_path(self) -> Path:
        """The state directory with `~` and XDG_STATE_HOME applied."""
        if "state_dir" not in self.model_fields_set and (home := os.environ.get("XDG_STATE_HOME")):
            return Path(home) / "armarium"
        return Path(self.state_dir).expanduser()

    def keys_file(self) -> Path:
        """The file of the keys that `armarium keys` manages."""
        return self.state_path() / "keys.json"

    def audit_file(self) -> Path:
        """The file of the audit log."""
        return Path(self.audit.file).expanduser() if self.audit.file else self.state_path() / "audit.sqlite"
