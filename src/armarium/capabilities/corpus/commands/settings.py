"""The model of `.dir2mcp.yaml`, as the contract defines it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from armarium.capabilities.corpus.settings import PROTOCOL_VERSION, CorpusSettings, PathExcludes, SharedSections
from armarium.foundation.settings.model import (
    AuditSettings,
    LimitSettings,
    NetworkRule,
    Section,
    TelemetrySettings,
    written_duration,
)

AUTH_TOKEN_VARIABLE = "DIR2MCP_AUTH_TOKEN"  # noqa: S105 the name of a variable, not a secret

_DEFAULTS = CorpusSettings()
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_RESERVED_PATHS = ("/health", "/metrics")
_PRIVATE_MODES = {0o600, 0o400}


def _seconds(value: object) -> object:
    """Parse `24h` or `1h30m` to seconds, and 0 to None for unlimited."""
    if isinstance(value, int | float):
        return None if value == 0 else value
    text = str(value).strip()
    if text in ("0", "off"):
        return None
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("write a duration such as 30m, 24h or 1h30m, or 0 for no limit")
    return sum(float(number) * _UNIT_S[unit] for number, unit in parts) or None


def _written_seconds(seconds: float | None) -> str:
    return "0" if seconds is None else written_duration(seconds)


Lifetime = Annotated[
    Annotated[float, Field(gt=0)] | None,
    BeforeValidator(_seconds),
    PlainSerializer(_written_seconds),
    Field(json_schema_extra={"x-form": "a duration such as 30m, 24h or 1h30m, or 0 for no limit"}),
]


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:0`, `[::1]:8080`, or `:8080` for all addresses."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError("write host:port, such as 127.0.0.1:8080; port 0 selects a free port")
    bare = host.removeprefix("[").removesuffix("]")
    if (":" in bare) != (host != bare) or any(character in bare for character in "/@ "):
        raise ValueError("write host:port; an IPv6 address needs brackets, such as [::1]:8080")
    return bare or "0.0.0.0", int(port)  # noqa: S104 what `:8080` means everywhere


def _listen_address(text: str) -> str:
    parse_listen(text)
    return text


def _path(text: str) -> str:
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", text) or text in _RESERVED_PATHS:
        raise ValueError(f"write a path such as /mcp; {' and '.join(_RESERVED_PATHS)} are reserved")
    return text


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        valid = False
    if text and not valid:
        raise ValueError("write an http or https URL")
    return text


def _price(value: object) -> object:
    text = f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise ValueError("write a price such as 0.001")
    return text


def _permissions(value: object) -> object:
    # YAML parses 0600 without quotes as an octal number.
    bits = value if isinstance(value, int) else int(str(value), 8) if re.fullmatch("[0-7]+", str(value)) else -1
    if bits not in _PRIVATE_MODES:
        raise ValueError("must be 0600 or 0400")
    return f"{bits:04o}"


Url = Annotated[str, AfterValidator(_url)]


class TlsSettings(Section):
    """TLS."""

    enabled: bool = False
    """Whether the server uses HTTPS."""
    cert_file: str = ""
    """Certificate with its chain (PEM)."""
    key_file: str = ""
    """Private key of the certificate (PEM), without a passphrase."""


class ServerSettings(Section):
    """The address of the server, and the lifetime of sessions."""

    listen: Annotated[str, AfterValidator(_listen_address)] = "127.0.0.1:0"
    """`host:port`; port 0 selects a free port."""
    mcp_path: Annotated[str, AfterValidator(_path)] = "/mcp"
    """Path of the MCP endpoint."""
    protocol_version: Literal["2025-11-25"] = PROTOCOL_VERSION
    """The protocol version announced to clients; other versions work as well."""
    tls: TlsSettings = TlsSettings()
    public: bool = False
    """Listen on all addresses, and require a token."""
    session_inactivity_timeout: Lifetime = 24 * 3600.0
    """A session is closed after this time without a request."""
    session_max_lifetime: Lifetime = None
    """A session is closed at this age, even if it is in use."""


class KeychainSettings(Section):
    """Keys in the keychain of the operating system."""

    service: str = "dir2mcp"
    """The name of the service."""
    account: str = "default"
    """The account; a key's entry is `account:NAME`."""


class SecretFileSettings(Section):
    """A file of `NAME=value` lines."""

    path: str = ".dir2mcp/secret.env"
    """Path of the file, relative to the directory."""
    mode: Annotated[str, BeforeValidator(_permissions)] = "0600"
    """Permissions of the file, 0600 or 0400. A file that is more open is rejected."""


class SecretSettings(Section):
    """The sources of keys that are not in the environment."""

    provider: Literal["auto", "keychain", "file", "env", "session"] = "auto"
    """`auto`: the keychain, then the file, then a prompt; otherwise only the named source. A variable overrides each.
    `env`: keys are neither asked for nor stored. `session`: `up` asks for keys, and forgets them when it ends."""
    keychain: KeychainSettings = KeychainSettings()
    file: SecretFileSettings = SecretFileSettings()


class AuthSettings(Section):
    """The token that clients must send."""

    mode: Literal["auto", "none", "file"] = "auto"
    """`auto`: a generated token; `file`: the token in `token_file`; `none`: no token, only on loopback addresses."""
    token_file: str = ""
    """The file with the token."""
    token_env: str = AUTH_TOKEN_VARIABLE
    """The variable with the token; it overrides a file."""


class SecuritySettings(Section):
    """Authentication, and excluded content."""

    auth: AuthSettings = AuthSettings()
    allowed_origins: tuple[str, ...] = ("http://localhost", "http://127.0.0.1")
    """Allowed browser origins. A loopback origin without a port allows all ports."""
    path_excludes: PathExcludes = _DEFAULTS.path_excludes
    """Patterns, as in .gitignore, of files that are neither indexed nor shown, in addition to the defaults.
    `!**/ca.pem` includes a file again."""
    secret_patterns: tuple[str, ...] = _DEFAULTS.secret_patterns
    """Regular expressions (RE2). A file whose content matches one of them is neither indexed nor shown."""


class PaidCallSettings(Section):
    """The price of a tool call."""

    enabled: bool = False
    """Whether tool calls require payment."""
    price: Annotated[str, BeforeValidator(_price)] = "0.001"
    """Price of a call."""
    network: str = Field(default="eip155:8453", pattern=r"^[-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,32}$")
    """Network, as a CAIP-2 identifier."""
    scheme: str = "exact"
    """Payment scheme."""
    asset: str = ""
    """Asset of the payment."""
    pay_to: str = ""
    """Recipient of the payment."""


class RoutePolicySettings(Section):
    """Prices by route."""

    tools_call: PaidCallSettings = PaidCallSettings()


class BazaarMetadataSettings(Section):
    """Metadata for a directory of services."""

    description: str = ""
    """Description in one sentence."""


class BazaarSettings(Section):
    """Listing in a directory of services."""

    enabled: bool = False
    """Whether the server is listed."""
    metadata: BazaarMetadataSettings = BazaarMetadataSettings()


class PaymentSettings(Section):
    """Payments (x402); not available in this version, so `mode` must be off."""

    enabled: bool = False
    """Whether payments are enabled."""
    mode: Literal["off", "on", "required"] = "off"
    """Whether payment is optional (`on`) or required."""
    facilitator_url: Url = ""
    """Service that verifies and settles payments."""
    resource_base_url: Url = ""
    """Public URL of the server in payment requirements."""
    route_policy: RoutePolicySettings = RoutePolicySettings()
    bazaar: BazaarSettings = BazaarSettings()


class Dir2McpSettings(SharedSections):
    """The settings in `.dir2mcp.yaml`."""

    version: Literal[1] = 1
    """Version of the file format."""
    network: NetworkRule = "on"
    """Hosts to which the program may connect: `on` for all, `off` for none, or a list. This machine is always
    permitted."""
    x402: PaymentSettings = PaymentSettings()
    server: ServerSettings = ServerSettings()
    secrets: SecretSettings = SecretSettings()
    security: SecuritySettings = SecuritySettings()
    limits: LimitSettings = LimitSettings()
    audit: AuditSettings = AuditSettings(enabled=False)
    telemetry: TelemetrySettings = TelemetrySettings()


CORPUS_SECTIONS: tuple[str, ...] = tuple(SharedSections.model_fields)
"""The sections that belong to the corpus."""


def plain_values(settings: Dir2McpSettings) -> dict[str, Any]:
    """The settings as plain values for a file, without keys. The version comes first."""
    values: dict[str, Any] = {"version": settings.version} | settings.model_dump(mode="json")
    for section in (values["mistral"], values["openai"], values["rerank"], *values["stt"].values()):
        if isinstance(section, dict):
            section.pop("api_key", None)  # pyright: ignore[reportUnknownMemberType] any JSON
    return values
