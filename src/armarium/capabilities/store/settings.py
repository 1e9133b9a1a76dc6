"""The store's section of the settings: the contract's names and defaults, and where the database is."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator

from armarium.foundation.settings import Section

Pooler = Literal["auto", "none", "transaction"]
"""Whether sessions of the database are shared with others, transaction by transaction; `auto` finds out."""

_MIB = 1024 * 1024
LOCAL_DIMENSIONS = 384
"""Numbers in a vector of the local embedder."""


def _kek_ids(keks: dict[int, SecretStr]) -> dict[int, SecretStr]:
    if any(not 0 <= kek_id < 2**16 for kek_id in keks):
        raise ValueError("the id of a key is a number from 0 to 65535")
    if any(len(secret.get_secret_value()) < 16 for secret in keks.values()):
        raise ValueError("a key needs at least 16 characters; `openssl rand -hex 32` makes one")
    return keks


class RerankSettings(Section):
    """A service that puts the best chunks in order, asked with the caller's own key."""

    enabled: bool = False
    """Whether it is asked. Off by default: nobody's key leaves the machine unless the operator says so."""
    model: str = "rerank-v3.5"
    """The model to ask for."""
    endpoint: str = "https://oneapi.laisky.com/v1/rerank"
    """Where it answers, in the way of Cohere's API."""
    timeout_ms: int = Field(default=3000, gt=0)
    """How long a search waits for it before it does without."""

    @property
    def is_forgotten(self) -> bool:
        """Whether a reranker is described, and nothing says whether it is on."""
        return bool(self.model_fields_set) and "enabled" not in self.model_fields_set


class FallbackSettings(Section):
    """How the two ways of searching are weighed when no reranker decides. The defaults are the best over four judged
    sets of prose and code."""

    semantic_weight: float = Field(default=0.7, ge=0)
    """How much nearness in meaning counts."""
    lexical_weight: float = Field(default=0.3, ge=0)
    """How much common words count."""

    @model_validator(mode="after")
    def _something_counts(self) -> FallbackSettings:
        if not self.semantic_weight + self.lexical_weight:
            raise ValueError("one of the weights must be more than 0")
        return self


class SearchSettings(Section):
    """How `file_search` works."""

    enabled: bool = True
    """Whether files are indexed and can be searched."""
    limit_default: int = Field(default=5, gt=0)
    """Chunks in an answer when the caller does not say."""
    limit_max: int = Field(default=20, gt=0)
    """Most chunks in an answer."""
    vector_candidates: int = Field(default=30, gt=0)
    """Chunks taken from the search by meaning."""
    bm25_candidates: int = Field(default=30, gt=0)
    """Chunks taken from the search by words."""
    embed_timeout_ms: int = Field(default=5000, gt=0)
    """How long a search waits for the query's vector before it looks for words alone."""
    concurrent_per_caller: int = Field(default=4, gt=0)
    """Searches of one caller that run at once. More wait."""
    waiting_per_caller: int = Field(default=32, ge=0)
    """Searches of one caller that wait. More are refused with RATE_LIMITED."""
    wait_ms: int = Field(default=5000, gt=0)
    """How long a search waits for others before it is refused."""
    rerank: RerankSettings = RerankSettings()
    fallback: FallbackSettings = FallbackSettings()


class IndexSettings(Section):
    """How files become searchable."""

    workers: int = Field(default=2, ge=0)
    """Files embedded at once in the server; 0 leaves all indexing to `armarium store worker`."""
    batch_size: int = Field(default=20, gt=0)
    """Jobs taken at a time."""
    retry_max: int = Field(default=5, ge=0)
    """How often a job is tried again before it counts as failed."""
    retry_backoff_ms: int = Field(default=1000, gt=0)
    """Wait before the first retry; it doubles with each."""
    lease_seconds: float = Field(default=60.0, gt=0)
    """A job whose worker is not heard of for this long is given to another."""
    poll_seconds: float = Field(default=5.0, gt=0)
    """How often workers look for jobs without being told, in case a notice was lost."""
    slo_p95_seconds: float = Field(default=30.0, gt=0)
    """Within this time 95 of 100 writes are to be searchable; the alert rules use it."""


class EmbeddingSettings(Section):
    """What turns text into vectors."""

    provider: Literal["local", "openai"] = "local"
    """`local`: the model that comes with Armarium, no key; `openai`: any endpoint that speaks OpenAI's API, asked with
    the caller's own key."""
    base_url: str = "https://api.openai.com/v1"
    """Where the endpoint is, for `openai`."""
    model: str = "text-embedding-3-small"
    """The model to ask for, for `openai`."""
    dimensions: int = Field(default=1536, gt=0, le=16000)
    """Numbers in a vector, for `openai`. Part of the schema: changing it needs `armarium store reindex`."""


class SecuritySettings(Section):
    """How callers' keys are kept between a write and its indexing."""

    encryption_keks: Annotated[dict[int, SecretStr], AfterValidator(_kek_ids)] = Field(
        default_factory=dict[int, SecretStr]
    )
    """Key-encryption keys by id, 0 to 65535; the largest id encrypts, all decrypt. Needed for a provider with keys."""
    credential_cache_prefix: str = "mcp:files:cred"
    """How names in Redis begin."""
    credential_cache_ttl_seconds: int = Field(default=300, gt=0)
    """How long a caller's key waits for its job, encrypted, before it is gone."""


class HistorySettings(Section):
    """Which earlier versions of a file are kept."""

    versions: int = Field(default=20, ge=0)
    """Newest versions kept for each file; 0 keeps none."""
    days: int = Field(default=30, gt=0)
    """Versions older than this go as well."""


class RateSettings(Section):
    """How often one caller may call."""

    calls_per_second: float = Field(default=50.0, gt=0)
    """Calls a second over a longer time."""
    burst: int = Field(default=200, gt=0)
    """Calls at once after a pause."""


class StoreSettings(Section):
    """Files kept for many callers in PostgreSQL. Only the file of settings counts here, never the environment."""

    from_file_only: ClassVar[bool] = True
    known_as: ClassVar[str | None] = "settings.mcp.files"

    dsn: SecretStr | None = None
    """Address of a PostgreSQL 15 or newer with pgvector. Without it, one is started here for this server."""
    data_dir: str | None = None
    """Where the database started here keeps its files; by default `postgres` in the state directory."""
    pooler: Pooler = "auto"
    """Whether `dsn` leads to a pooler that gives each transaction to another session, such as PgBouncer with
    `pool_mode = transaction`. `auto` finds out at the start; `none` and `transaction` do not ask."""
    pool_size: int = Field(default=10, ge=2)
    """Connections to the database."""
    database_timeout_ms: int = Field(default=30_000, ge=100)
    """Longest wait for the database: for a connection, for a statement, for a commit. A call that waits longer ends
    with RESOURCE_BUSY."""
    database_wait_ms: int = Field(default=30_000, ge=0)
    """How long a start waits for a database that cannot be reached yet."""
    redis_url: SecretStr | None = None
    """Redis for callers' keys on their way to a worker; without it they stay in this process's memory."""
    allow_root_wipe: bool = False
    """Whether `file_delete` of a project's root, recursively, is allowed."""
    max_payload_bytes: int = Field(default=2 * _MIB, gt=0, le=256 * _MIB)
    """Most bytes in one write."""
    max_file_bytes: int = Field(default=10 * _MIB, gt=0, le=256 * _MIB)
    """Most bytes in one file."""
    max_project_bytes: int = Field(default=1024 * _MIB, gt=0)
    """Most bytes in all files of a project."""
    list_limit_default: int = Field(default=256, gt=0)
    """Entries in a listing when the caller does not say."""
    list_limit_max: int = Field(default=1000, gt=0)
    """Most entries in a listing."""
    lock_timeout_ms: int = Field(default=5000, gt=0)
    """How long a change waits for others in the same project before it is refused as busy."""
    delete_retention_days: int = Field(default=30, ge=0)
    """How long deleted files are kept before they are purged."""
    rate: RateSettings = RateSettings()
    history: HistorySettings = HistorySettings()
    search: SearchSettings = SearchSettings()
    index: IndexSettings = IndexSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    security: SecuritySettings = SecuritySettings()

    @property
    def dimensions(self) -> int:
        """Numbers in a vector, which the schema is made for."""
        return LOCAL_DIMENSIONS if self.embedding.provider == "local" else self.embedding.dimensions

    @model_validator(mode="after")
    def _fits_together(self) -> StoreSettings:
        if self.embedding.provider == "openai" and self.search.enabled and not self.security.encryption_keks:
            raise ValueError(
                "embedding.provider openai needs security.encryption_keks, which callers' keys are encrypted with"
            )
        if self.search.limit_default > self.search.limit_max or self.list_limit_default > self.list_limit_max:
            raise ValueError("a default limit is larger than its maximum")
        return self
