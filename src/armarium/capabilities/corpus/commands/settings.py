"""The file `.dir2mcp.yaml` as its contract has it: the corpus's own sections, and those of the server around it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from armarium.capabilities.corpus.settings import (
    PROTOCOL_VERSION,
    ChatSettings,
    ChunkingSettings,
    CorpusSettings,
    EmbeddingSettings,
    IngestSettings,
    MistralSettings,
    OpenAISettings,
    PathExcludes,
    RagSettings,
    RerankSettings,
    SpeechSettings,
)
from armarium.foundation.settings import AuditSettings, LimitSettings, Section, TelemetrySettings, written_duration

AUTH_TOKEN_VARIABLE = "DIR2MCP_AUTH_TOKEN"  # noqa: S105 the name of a variable, not a secret

_CORPUS = CorpusSettings()
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_RESERVED_PATHS = ("/health", "/metrics")
_PRIVATE_MODES = {0o600, 0o400}


def _seconds(value: object) -> object:
    """`24h`, `1h30m`, or 0 for no limit."""
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
    """Host and port of `127.0.0.1:0`, `[::1]:8080` or `:8080`, which is every address."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError("write host:port, such as 127.0.0.1:8080; port 0 takes a free one")
    bare = host.removeprefix("[").removesuffix("]")
    if (":" in bare) != (host != bare) or any(character in bare for character in "/@ "):
        raise ValueError("write host:port; an IPv6 address needs brackets, such as [::1]:8080")
    return bare or "0.0.0.0", int(port)  # noqa: S104 what `:8080` means everywhere


def _listen_address(text: str) -> str:
    parse_listen(text)
    return text


def _path(text: str) -> str:
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", text) or text in _RESERVED_PATHS:
        raise ValueError(f"write a path such as /mcp; {' and '.join(_RESERVED_PATHS)} are taken")
    return text


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        proper = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        proper = False
    if text and not proper:
        raise ValueError("write an http or https address")
    return text


def _price(value: object) -> object:
    text = f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise ValueError("write a price such as 0.001")
    return text


def _permissions(value: object) -> object:
    # Without quotes YAML reads 0600 as the number it is.
    bits = value if isinstance(value, int) else int(str(value), 8) if re.fullmatch("[0-7]+", str(value)) else -1
    if bits not in _PRIVATE_MODES:
        raise ValueError("only 0600 and 0400 keep a secret")
    return f"{bits:04o}"


Url = Annotated[str, AfterValidator(_url)]


class TlsSettings(Section):
    """Encryption."""

    enabled: bool = False
    """Whether the server speaks https."""
    cert_file: str = ""
    """The certificate with its chain, PEM."""
    key_file: str = ""
    """The certificate's key, PEM, without a passphrase."""


class ServerSettings(Section):
    """Where the server listens, and how long sessions last."""

    listen: Annotated[str, AfterValidator(_listen_address)] = "127.0.0.1:0"
    """`host:port`; port 0 takes a free one."""
    mcp_path: Annotated[str, AfterValidator(_path)] = "/mcp"
    """Where MCP is spoken."""
    protocol_version: Literal["2025-11-25"] = PROTOCOL_VERSION
    """The protocol clients are told to speak; other versions are understood as well."""
    tls: TlsSettings = TlsSettings()
    public: bool = False
    """Listen on every address, and insist on a token."""
    session_inactivity_timeout: Lifetime = 24 * 3600.0
    """A session nobody used for this long is closed."""
    session_max_lifetime: Lifetime = None
    """A session older than this is closed, used or not."""


class KeychainSettings(Section):
    """Where the operating system keeps keys."""

    service: str = "dir2mcp"
    """The service's name there."""
    account: str = "default"
    """The account; a key's entry is `account:NAME`."""


class SecretFileSettings(Section):
    """A file of `NAME=value` lines."""

    path: str = ".dir2mcp/secret.env"
    """Where it is, relative to the directory."""
    mode: Annotated[str, BeforeValidator(_permissions)] = "0600"
    """Its permissions; a file others can read is refused."""


class SecretSettings(Section):
    """Where keys come from when the environment has none."""

    provider: Literal["auto", "keychain", "file", "env", "session"] = "auto"
    """`auto`: the keychain, then the file, then a question at the terminal; otherwise only the one named."""
    keychain: KeychainSettings = KeychainSettings()
    file: SecretFileSettings = SecretFileSettings()


class AuthSettings(Section):
    """The token clients must show."""

    mode: Literal["auto", "none", "file"] = "auto"
    """`auto`: a token made once; `file`: the one in `token_file`; `none`: no token, on loopback addresses only."""
    token_file: str = ""
    """The file with the token."""
    token_env: str = AUTH_TOKEN_VARIABLE
    """The variable with the token; it wins over a file."""


class SecuritySettings(Section):
    """Who may call, and what is never shown."""

    auth: AuthSettings = AuthSettings()
    allowed_origins: tuple[str, ...] = ("http://localhost", "http://127.0.0.1")
    """Browser origins that may call; a loopback one without a port stands for every port."""
    path_excludes: PathExcludes = _CORPUS.path_excludes
    """Patterns, as in .gitignore, of files that are neither indexed nor shown, besides the default ones. `!**/ca.pem`
    shows a file again."""
    secret_patterns: tuple[str, ...] = _CORPUS.secret_patterns
    """Regular expressions (RE2); a file whose content one of them fits is neither indexed nor shown."""


class PaidCallSettings(Section):
    """What a tool call costs."""

    enabled: bool = False
    """Whether tool calls are paid for."""
    price: Annotated[str, BeforeValidator(_price)] = "0.001"
    """Price of a call."""
    network: str = Field(default="eip155:8453", pattern=r"^[-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,32}$")
    """Network, as CAIP-2 writes it."""
    scheme: str = "exact"
    """Payment scheme."""
    asset: str = ""
    """What is paid with."""
    pay_to: str = ""
    """Who is paid."""


class RoutePolicySettings(Section):
    """What is paid for."""

    tools_call: PaidCallSettings = PaidCallSettings()


class BazaarMetadataSettings(Section):
    """What a directory of services is told."""

    description: str = ""
    """One sentence."""


class BazaarSettings(Section):
    """Whether a directory of services may list this one."""

    enabled: bool = False
    """Whether it is told."""
    metadata: BazaarMetadataSettings = BazaarMetadataSettings()


class PaymentSettings(Section):
    """Payments (x402); not available in this version, so `mode` must be off."""

    enabled: bool = False
    """Whether calls may be paid for."""
    mode: Literal["off", "on", "required"] = "off"
    """How."""
    facilitator_url: Url = ""
    """Who verifies and settles."""
    resource_base_url: Url = ""
    """The server's public address, as payment requirements name it."""
    route_policy: RoutePolicySettings = RoutePolicySettings()
    bazaar: BazaarSettings = BazaarSettings()


class Dir2McpSettings(Section):
    """Everything `.dir2mcp.yaml` may say."""

    version: Literal[1] = 1
    """Version of the file's form."""
    mistral: MistralSettings = MistralSettings()
    openai: OpenAISettings = OpenAISettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    chat: ChatSettings = ChatSettings()
    rerank: RerankSettings = RerankSettings()
    rag: RagSettings = RagSettings()
    ingest: IngestSettings = IngestSettings()
    chunking: ChunkingSettings = ChunkingSettings()
    stt: SpeechSettings = SpeechSettings()
    x402: PaymentSettings = PaymentSettings()
    server: ServerSettings = ServerSettings()
    secrets: SecretSettings = SecretSettings()
    security: SecuritySettings = SecuritySettings()
    limits: LimitSettings = LimitSettings()
    audit: AuditSettings = AuditSettings(enabled=False)
    telemetry: TelemetrySettings = TelemetrySettings()


CORPUS_SECTIONS: tuple[str, ...] = (
    "mistral", "openai", "embedding", "chat", "rerank", "rag", "ingest", "chunking", "stt",
)  # fmt: skip
"""The sections that are the corpus's own."""


def plain_values(settings: Dir2McpSettings) -> dict[str, Any]:
    """The settings as a file may hold them; keys are left out, wherever they came from."""
    values = settings.model_dump(mode="json")
    for section in (values["mistral"], values["openai"], values["rerank"], *values["stt"].values()):
        if isinstance(section, dict):
            section.pop("api_key", None)  # pyright: ignore[reportUnknownMemberType] any JSON
    return values
