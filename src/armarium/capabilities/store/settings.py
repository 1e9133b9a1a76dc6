"""Settings of the store, with the names and defaults of its contract."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Literal, cast

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from armarium.foundation.security.access import AccessRule
from armarium.foundation.settings.file_secrets import require_length
from armarium.foundation.settings.model import RestrictedSection, Section

Pooler = Literal["auto", "none", "transaction"]
"""Whether a pooler assigns each transaction to another session; `auto` detects it."""

_MIB = 1024 * 1024
LOCAL_DIMENSIONS = 384
"""Dimensions of the local embedder."""


def _kek_ids(keks: dict[int, SecretStr]) -> dict[int, SecretStr]:
    if any(not 0 <= kek_id < 2**16 for kek_id in keks):
        raise ValueError("the id of a key is a number from 0 to 65535")
    for secret in keks.values():
        require_length(secret, 16, "create one with `openssl rand -hex 32`")
    return keks


class RerankSettings(Section):
    """A service that reranks the best chunks, called with the caller's own key."""

    enabled: bool | None = None
    """Whether to use it. By default it is used if `model` or `endpoint` is set, so that callers' keys leave the machine
    only if the operator decides so."""
    model: str = "rerank-v3.5"
    """The model."""
    endpoint: str = "https://oneapi.laisky.com/v1/rerank"
    """URL of an endpoint that implements the API of Cohere."""
    timeout_ms: int = Field(default=3000, gt=0)
    """How long a search waits for it before it continues without."""

    @property
    def is_used(self) -> bool:
        return self.enabled if self.enabled is not None else not self.model_fields_set.isdisjoint({"model", "endpoint"})


class FallbackSettings(Section):
    """Weights of rank fusion without a reranker. The defaults are the best over four judged sets of prose and code."""

    semantic_weight: float = Field(default=0.7, ge=0)
    """Weight of semantic search."""
    lexical_weight: float = Field(default=0.3, ge=0)
    """Weight of lexical search."""

    @model_validator(mode="after")
    def _something_counts(self) -> FallbackSettings:
        if not self.semantic_weight + self.lexical_weight:
            raise ValueError("one of the weights must be more than 0")
        return self


class SearchSettings(Section):
    """Settings of `file_search`."""

    enabled: bool = True
    """Whether files are indexed and can be searched."""
    limit_default: int = Field(default=5, gt=0)
    """Default number of chunks in a result."""
    limit_max: int = Field(default=20, gt=0)
    """Maximum number of chunks in a result."""
    vector_candidates: int = Field(default=30, gt=0)
    """Candidates from semantic search."""
    bm25_candidates: int = Field(default=30, gt=0)
    """Candidates from lexical search."""
    embed_timeout_ms: int = Field(default=5000, gt=0)
    """How long a search waits for the query's vector before it continues with lexical search only."""
    concurrent_per_caller: int = Field(default=4, gt=0)
    """Concurrent searches of one caller. Further ones wait."""
    waiting_per_caller: int = Field(default=32, ge=0)
    """Waiting searches of one caller. Further ones are refused with RATE_LIMITED."""
    wait_ms: int = Field(default=5000, gt=0)
    """How long a search waits for a slot before it is refused."""
    rerank: RerankSettings = RerankSettings()
    fallback: FallbackSettings = FallbackSettings()


class IndexSettings(Section):
    """Settings of indexing."""

    workers: int = Field(default=2, ge=0)
    """Files embedded concurrently in the server; 0 leaves all indexing to `armarium store worker`."""
    batch_size: int = Field(default=20, gt=0)
    """Jobs claimed at a time."""
    retry_max: int = Field(default=5, ge=0)
    """Number of retries before a job is marked as failed."""
    retry_backoff_ms: int = Field(default=1000, gt=0)
    """Delay before the first retry; it doubles with each."""
    lease_seconds: float = Field(default=60.0, gt=0)
    """How long a job stays with a worker that does not renew its lease."""
    poll_seconds: float = Field(default=5.0, gt=0)
    """How often workers poll for jobs without a wake-up."""
    slo_p95_seconds: float = Field(default=30.0, gt=0)
    """Target for the 95th percentile of the time until a write is searchable; used by the alert rules."""


class EmbeddingSettings(Section):
    """The embedder."""

    provider: Literal["local", "openai"] = "local"
    """`local`: the built-in model, without a key; `openai`: any endpoint that implements the API of OpenAI, called with
    the caller's own key."""
    base_url: str = "https://api.openai.com/v1"
    """URL of the endpoint, for `openai`."""
    model: str = "text-embedding-3-small"
    """The model, for `openai`."""
    dimensions: int = Field(default=1536, gt=0, le=16000)
    """Dimensions of the vectors, for `openai`. Part of the schema: changing it needs `armarium store reindex`."""


class SecuritySettings(Section):
    """How callers' keys are stored between a write and its indexing."""

    encryption_keks: Annotated[dict[int, SecretStr], AfterValidator(_kek_ids)] = Field(
        default_factory=dict[int, SecretStr]
    )
    """Key-encryption keys by id, 0 to 65535; the largest id encrypts, all decrypt. Needed for a provider with keys."""
    credential_cache_prefix: str = "mcp:files:cred"
    """Prefix of the names in Redis."""
    credential_cache_ttl_seconds: int = Field(default=300, gt=0)
    """How long a caller's key is stored, encrypted, before it expires."""


class HistorySettings(Section):
    """Retention of earlier versions of files."""

    versions: int = Field(default=20, ge=0)
    """Earlier versions stored for each file; 0 stores none."""
    days: int = Field(default=30, gt=0)
    """Versions older than this are purged."""


class RateSettings(Section):
    """Rate limit of each caller."""

    calls_per_second: float = Field(default=50.0, gt=0)
    """Sustained calls per second."""
    burst: int = Field(default=200, gt=0)
    """Calls in a burst."""


class ProjectSettings(RestrictedSection):
    """The groups of projects. They apply to the projects of this name of every caller."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.*-]+$", max_length=128)
    """Name of the projects; `*` stands for any characters, as in `payroll-*`."""


def _flag(value: object) -> object:
    """The contract's form of a flag is a section with `enabled`."""
    if not isinstance(value, Mapping):
        return value
    flag = cast(Mapping[str, object], value)
    return flag["enabled"] if [*flag] == ["enabled"] else flag


ToolFlag = Annotated[bool, BeforeValidator(_flag)]


class ToolSettings(Section):
    """Which tools are offered. A tool that is not is neither listed nor callable, over MCP, HTTP and in `mcp_pipe`.

    A flag is `false`, or `{enabled: false}` as in the contract."""

    # The contract's files have the flags of other tools here, too.
    model_config = ConfigDict(extra="allow")

    file_io: ToolFlag = True
    """All tools of the store."""
    file_stat: ToolFlag = True
    """What is at a path."""
    file_read: ToolFlag = True
    """The content of a file."""
    file_write: ToolFlag = True
    """Append, overwrite or replace."""
    file_delete: ToolFlag = True
    """Delete files and directories."""
    file_rename: ToolFlag = True
    """Rename or move files and directories."""
    file_list: ToolFlag = True
    """What is in a directory."""
    file_search: ToolFlag = True
    """Search in the content of files."""
    file_history: ToolFlag = True
    """The stored versions of a file."""
    file_restore: ToolFlag = True
    """Restore a version."""
    file_purge: ToolFlag = True
    """Delete earlier versions for good."""

    def offers(self, tool: str) -> bool:
        return self.file_io and getattr(self, tool)

    @property
    def of_other_servers(self) -> list[str]:
        """Tools with flags that this server does not have."""
        return sorted(self.model_extra or ())

    @model_validator(mode="after")
    def _no_misspelt_tool(self) -> ToolSettings:
        if misspelt := [name for name in self.of_other_servers if name.startswith("file")]:
            known = ", ".join(type(self).model_fields)
            raise ValueError(f"there is no tool `{misspelt[0]}`; known: {known}")
        return self


class StoreSettings(RestrictedSection):
    """Durable files of many callers in PostgreSQL. Configured only by the settings file, not by the environment."""

    from_file_only: ClassVar[bool] = True
    known_as: ClassVar[Mapping[str, str]] = {"settings.mcp.files": "", "settings.mcp.tools": "tools"}

    dsn: SecretStr | None = None
    """Address of a PostgreSQL 15 or newer with pgvector. Without it, the server starts an embedded one."""
    data_dir: str | None = None
    """Data directory of the embedded PostgreSQL; by default `postgres` in the state directory."""
    pooler: Pooler = "auto"
    """Whether `dsn` points to a pooler that assigns each transaction to another session, such as PgBouncer with
    `pool_mode = transaction`. `auto` detects it at start-up; `none` and `transaction` skip the detection."""
    pool_size: int = Field(default=10, ge=2)
    """Maximum number of connections to the database."""
    database_timeout_ms: int = Field(default=30_000, ge=100)
    """Timeout for acquiring a connection, for a statement and for a commit. A call that exceeds it fails with
    RESOURCE_BUSY."""
    database_wait_ms: int = Field(default=30_000, ge=0)
    """How long start-up waits for an unreachable database."""
    redis_url: SecretStr | None = None
    """Redis for callers' keys between a write and its indexing; without it they stay in the memory of the process."""
    allow_root_wipe: bool = False
    """Whether a recursive `file_delete` of a project's root is allowed."""
    max_payload_bytes: int = Field(default=2 * _MIB, gt=0, le=256 * _MIB)
    """Maximum size of one write in bytes."""
    max_file_bytes: int = Field(default=10 * _MIB, gt=0, le=256 * _MIB)
    """Maximum size of one file in bytes."""
    max_project_bytes: int = Field(default=1024 * _MIB, gt=0)
    """Maximum number of bytes that a project keeps: files, earlier versions, deleted files, and 256 per request."""
    max_projects: int = Field(default=10_000, gt=0)
    """Maximum number of projects of one caller."""
    list_limit_default: int = Field(default=256, gt=0)
    """Default number of entries in a listing."""
    list_limit_max: int = Field(default=1000, gt=0)
    """Maximum number of entries in a listing."""
    lock_timeout_ms: int = Field(default=5000, gt=0)
    """How long a change waits for the lock of its project before it fails with RESOURCE_BUSY."""
    delete_retention_days: int = Field(default=30, ge=0)
    """How long deleted files are stored before they are purged."""
    projects: tuple[ProjectSettings, ...] = ()
    """Projects for members of certain groups. Every entry that matches a project must admit the caller."""
    tools: ToolSettings = ToolSettings()
    rate: RateSettings = RateSettings()
    history: HistorySettings = HistorySettings()
    search: SearchSettings = SearchSettings()
    index: IndexSettings = IndexSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    security: SecuritySettings = SecuritySettings()

    @property
    def dimensions(self) -> int:
        """Dimensions of the vectors, for which the schema is created."""
        return LOCAL_DIMENSIONS if self.embedding.provider == "local" else self.embedding.dimensions

    @property
    def needs_callers_keys(self) -> bool:
        """Whether files are embedded by an endpoint that needs the caller's key."""
        return self.search.enabled and self.embedding.provider != "local"

    @property
    def effective_pooler(self) -> Pooler:
        """The configured pooler mode; an embedded PostgreSQL has no pooler."""
        return self.pooler if self.dsn is not None else "none"

    def rules(self) -> Iterable[tuple[str, AccessRule]]:
        return [*super().rules(), *((f"project {each.name}", each.rule) for each in self.projects)]

    @model_validator(mode="after")
    def _fits_together(self) -> StoreSettings:
        if self.needs_callers_keys and not self.security.encryption_keks:
            raise ValueError("embedding.provider openai needs security.encryption_keks, to encrypt callers' keys")
        if self.search.limit_default > self.search.limit_max or self.list_limit_default > self.list_limit_max:
            raise ValueError("a default limit is larger than its maximum")
        return self
