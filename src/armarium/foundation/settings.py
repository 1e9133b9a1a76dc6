"""The settings that every server has, and the base class for the sections of capabilities."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Section(BaseModel):
    """A part of the settings. Field docstrings become the reference page."""

    from_file_only: ClassVar[bool] = False
    """Whether variables of the environment may not speak for this section."""
    known_as: ClassVar[str | None] = None
    """The dotted name that other documents have for this section. An error about it says where the settings stand."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _seconds(value: object) -> object:
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", value.strip())):
        return float(match[1]) * _UNITS_S[match[2]]
    return None if value == "off" or value is False else value


def written_duration(seconds: float | None) -> str:
    """A duration as a settings file has it."""
    if seconds is None:
        return "off"
    for unit, size in reversed(_UNITS_S.items()):
        # A single day is 24h to everybody.
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
    """Where the server listens and what it accepts."""

    host: str = "127.0.0.1"
    """Address to listen on. A public one needs `security.auth` other than `none`."""
    port: int = Field(default=8091, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    allowed_origins: tuple[str, ...] = ()
    """Browser origins that may call, besides the server's own loopback addresses."""
    max_body_bytes: int = Field(default=16 * 1024 * 1024, gt=0)
    """Requests with a larger body are refused with 413 before they are parsed."""
    shutdown_grace: Duration = 4.0
    """How long calls in flight may take to finish when the server is asked to stop."""


class KeySettings(Section):
    """One caller and the SHA-256 of their key."""

    username: str = Field(min_length=1)
    """Name in the audit trail and in access rules."""
    groups: tuple[str, ...] = ()
    """Groups the caller belongs to."""
    key_sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """SHA-256 of the key in hex, as `printf %s KEY | sha256sum` prints it."""


class SecuritySettings(Section):
    """Who may call."""

    auth: str = Field(default="auto", pattern=r"^(auto|none|keys|file:.+)$")
    """`auto`: one token, generated once; `file:<path>`: the token in that file; `keys`: the list below;
    `none`: anyone, on a loopback address only."""
    keys: tuple[KeySettings, ...] = ()
    """The callers for `auth: keys`."""


class SessionSettings(Section):
    """How long MCP sessions last."""

    inactivity_timeout: Duration = 24 * 3600.0
    """A session nobody used for this long is closed."""
    max_lifetime: Duration = None
    """A session older than this is closed, used or not."""
    max_sessions: int = Field(default=10_000, gt=0)
    """When this many sessions are open, a new one closes the session that is idle for the longest time, of the caller
    who has the most. When none is idle, new ones are refused with 503."""
    max_sessions_per_caller: int = Field(default=1000, gt=0)
    """When a caller has this many sessions, a new one closes their own that is idle for the longest time. When none is
    idle, new ones are refused with 429. Without keys, all callers of an address count as one here."""


class LimitSettings(Section):
    """What a call may cost, and what one caller may have in flight. A caller is a key; without keys a session, or an
    address where there is no session; over stdio the process."""

    call_timeout: Duration = 330.0
    """A call that takes longer is stopped with DEADLINE_EXCEEDED, unless its tool allows more."""
    max_argument_values: int = Field(default=200_000, gt=0)
    """Most values in the arguments of a call, at any depth. A larger HTTP body is refused before it is parsed."""
    max_argument_depth: int = Field(default=64, gt=0, le=500)
    """How deep the arguments of a call may be nested."""
    max_response_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    """A call whose answer is larger than this as JSON fails with RESPONSE_TOO_LARGE."""
    calls_in_flight: int = Field(default=256, gt=0)
    """Most calls of one caller at a time; more are refused with TOO_MANY_CALLS, over plain HTTP with 429."""
    searches_in_flight: int = Field(default=16, gt=0)
    """Most searches of one caller that run at a time; more wait for their turn, within their `call_timeout`."""
    response_bytes_in_flight: int = Field(default=64 * 1024 * 1024, gt=0)
    """Most bytes of large answers of one caller in memory; more wait, and those that find eight times as much waiting
    are refused with TOO_MANY_CALLS."""
    total_response_bytes_in_flight: int = Field(default=256 * 1024 * 1024, gt=0)
    """The same for all callers together."""
    request_bytes_in_flight: int = Field(default=64 * 1024 * 1024, gt=0)
    """Most bytes of large HTTP bodies of one caller in memory; more wait, and are refused with 429 after 30 seconds."""
    total_request_bytes_in_flight: int = Field(default=256 * 1024 * 1024, gt=0)
    """The same for all callers together."""
    requests_per_second: Annotated[float, Field(gt=0)] | None = 500.0
    """Most HTTP requests of one caller per second, over a longer time. A faster one waits up to a second and is then
    refused with 429; null means no limit."""
    request_burst: int = Field(default=2000, gt=0)
    """How many requests a caller may send at once before that limit counts."""


class AuditSettings(Section):
    """The audit trail."""

    file: str | None = None
    """SQLite file; by default `audit.sqlite` in the state directory."""
    enabled: bool = True
    """Whether calls are recorded there. The structured log has them in any case."""
    retention_days: int | None = Field(default=None, gt=0)
    """Records older than this are removed when the server starts."""


class TelemetrySettings(Section):
    """Logs and traces."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level written to standard error."""
    otlp_endpoint: str | None = None
    """OTLP/HTTP traces endpoint, e.g. http://127.0.0.1:4318/v1/traces; needs the `otel` extra."""


class CoreSettings(Section):
    """The settings every server has; capabilities add a section each."""

    state_dir: str = "~/.local/state/armarium"
    """Where the token and the audit trail live."""
    server: ServerSettings = ServerSettings()
    security: SecuritySettings = SecuritySettings()
    sessions: SessionSettings = SessionSettings()
    limits: LimitSettings = LimitSettings()
    audit: AuditSettings = AuditSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    def state_path(self) -> Path:
        """The state directory with `~` and XDG_STATE_HOME applied."""
        if "state_dir" not in self.model_fields_set and (home := os.environ.get("XDG_STATE_HOME")):
            return Path(home) / "armarium"
        return Path(self.state_dir).expanduser()

    def audit_file(self) -> Path:
        """Where the audit trail is."""
        return Path(self.audit.file).expanduser() if self.audit.file else self.state_path() / "audit.sqlite"
