"""The corpus's section of the settings, with the names of its own file `.dir2mcp.yaml`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, SecretStr

from armarium.capabilities.corpus.files.exclusion import DEFAULT_PATH_EXCLUDES, with_default_excludes
from armarium.capabilities.corpus.files.secret_patterns import DEFAULT_RULES
from armarium.foundation.security.access import ADMINISTER, READ, WRITE
from armarium.foundation.settings.file_secrets import written
from armarium.foundation.settings.model import RestrictedSection, Section

STATE_DIRECTORY = ".dir2mcp"
"""The default state directory, below the indexed directory."""
MEGABYTE: Final = 1_000_000
PROTOCOL_VERSION: Final = "2025-11-25"
"""The MCP revision of the contract: stored in the index and reported by `dir2mcp.stats`."""


def _from_environment(value: object) -> object:
    """Replace `${VARIABLE}` by its value in the environment. If it is not set, there is no key."""
    named = re.fullmatch(r"\$\{(\w+)\}", value.strip()) if isinstance(value, str) else None
    return os.environ.get(named[1], "") if named else value


Secret = Annotated[SecretStr, BeforeValidator(_from_environment), PlainSerializer(written)]
"""A key. It is never printed: settings that are written name its file, or must name its source again."""

PathExcludes = Annotated[tuple[str, ...], AfterValidator(with_default_excludes)]
"""Patterns in addition to the defaults, which are part of the value."""


class MistralSettings(Section):
    """Mistral's models."""

    api_key: Secret | None = None
    """The key, or `${VARIABLE}`. Without one, nothing is sent to Mistral."""
    base_url: str = "https://api.mistral.ai"
    """The base URL of the API."""
    chat_model: str = "mistral-small-2506"
    """The model that writes answers."""
    embed_text_model: str = "mistral-embed"
    """The model that embeds text."""
    embed_code_model: str = "codestral-embed"
    """The model that embeds code."""
    ocr_model: str = "mistral-ocr-latest"
    """The model that reads scanned pages and images."""


class OpenAISettings(Section):
    """Any endpoint with OpenAI's API: Ollama, vLLM, llama.cpp, OpenAI."""

    base_url: str = "http://127.0.0.1:11434/v1"
    """The base URL of the API, including its version."""
    api_key: Secret | None = None
    """The key, or `${VARIABLE}`. Local servers need none."""
    chat_model: str | None = None
    """The model that writes answers."""
    embed_text_model: str | None = None
    """The model that embeds text."""
    embed_code_model: str | None = None
    """The model that embeds code. Default: the one for text."""


class EmbeddingSettings(Section):
    """Which provider embeds chunks."""

    provider: Literal["auto", "local", "mistral", "openai"] = "auto"
    """`auto`: the provider that the index was built with. For a new index, Mistral if a key is configured, otherwise
    `local`, which needs neither key nor network."""
    requests_per_minute: float | None = Field(default=None, gt=0)
    """The rate limit for requests to a hosted provider. Unlimited by default."""


class ChatSettings(Section):
    """Which provider writes answers."""

    provider: Literal["auto", "none", "mistral", "openai"] = "auto"
    """`auto`: Mistral if a key is configured, else `openai` if a chat model is named, else none. Without a provider, an
    answer consists of the best sentences found."""
    timeout_s: float = Field(default=60.0, gt=0)
    """The timeout of an answer."""


class RerankSettings(Section):
    """Optional reranking of the best hits by a Cohere-compatible endpoint."""

    base_url: str | None = None
    """The base URL of the API. Without it, nothing is reranked."""
    api_key: Secret | None = None
    """The key, or `${VARIABLE}`."""
    model: str = "rerank-v3.5"
    """The model's name."""
    timeout_s: float = Field(default=3.0, gt=0)
    """After this timeout, the order is not changed."""
    candidates: int = Field(default=30, ge=1, le=200)
    """How many hits are reranked."""


class RagSettings(Section):
    """Search and answers."""

    generate_answer: bool = True
    """Whether `ask` writes an answer. Otherwise it returns hits only."""
    k_default: int = Field(default=10, ge=1, le=50)
    """The default number of hits."""
    system_prompt: str = "You are a retrieval-augmented assistant.\nUse citations and never invent sources.\n"
    """The system prompt of the chat model."""
    max_context_chars: int = Field(default=20_000, ge=500)
    """The largest number of characters of retrieved text in a prompt."""
    oversample_factor: int = Field(default=5, ge=1)
    """How many times more neighbours are requested than needed, because some are deleted or filtered out."""


class PdfSettings(Section):
    """PDFs."""

    mode: Literal["off", "ocr", "auto"] = "ocr"
    """`off`: not indexed; `auto`: digital text, and OCR where there is none; `ocr`: OCR if a provider supports it."""


class ImageSettings(Section):
    """Images."""

    mode: Literal["off", "ocr_auto", "ocr_on"] = "ocr_auto"
    """Whether text in images is read, if a provider supports it."""


class AudioSettings(Section):
    """Recordings."""

    mode: Literal["off", "auto", "on"] = "auto"
    """Whether speech is transcribed, if a provider supports it."""
    cache: bool = True
    """Whether transcripts are cached."""


class ArchiveSettings(Section):
    """zip, tar and tar.gz files."""

    mode: Literal["off", "shallow", "deep"] = "deep"
    """`off`: not opened; `shallow`: members are indexed; `deep`: members of nested archives too."""


class IngestSettings(Section):
    """What is indexed."""

    gitignore: bool = True
    """Whether .gitignore files apply."""
    pdf: PdfSettings = PdfSettings()
    images: ImageSettings = ImageSettings()
    audio: AudioSettings = AudioSettings()
    archives: ArchiveSettings = ArchiveSettings()
    follow_symlinks: bool = False
    """Whether links are followed. Links that lead outside the root never are."""
    max_file_mb: float = Field(default=20, gt=0)
    """Larger files are skipped."""
    max_file_mb_by_type: dict[str, float] = Field(default_factory=dict)
    """Limits for some document types, e.g. `pdf: 100`."""
    watch: bool = True
    """Whether changes are indexed as they happen."""
    max_state_gb: float = Field(default=20, gt=0)
    """Once the state directory has this size, no document is added. What is indexed stays searchable."""
    isolation: Literal["auto", "required", "off"] = "auto"
    """How the worker processes that parse files are isolated from other files, the network and other processes. `auto`:
    as far as the kernel supports it (Landlock, seccomp); `required`: index nothing without it; `off`: only memory and
    time limits."""


class CodeChunkSettings(Section):
    """Chunks of code."""

    max_lines: int = Field(default=200, ge=5)
    """The largest number of lines in a chunk."""
    overlap_lines: int = Field(default=30, ge=0)
    """Lines shared by adjacent chunks of a definition that had to be split."""


class TranscriptChunkSettings(Section):
    """Chunks of recordings."""

    segment_ms: int = Field(default=30_000, ge=1000)
    """The length of a chunk."""
    overlap_ms: int = Field(default=5_000, ge=0)
    """Time shared by adjacent chunks."""


class ChunkingSettings(Section):
    """How documents are split into chunks."""

    max_chars: int = Field(default=2500, ge=200)
    """The largest number of characters in a chunk."""
    overlap_chars: int = Field(default=250, ge=0)
    """Characters shared by adjacent chunks of a paragraph that had to be split."""
    min_chars: int = Field(default=200, ge=0)
    """Shorter chunks are merged with their neighbours if the structure of the document allows it."""
    code: CodeChunkSettings = CodeChunkSettings()
    transcript: TranscriptChunkSettings = TranscriptChunkSettings()


class MistralSpeechSettings(Section):
    """Mistral's speech recognition."""

    api_key: Secret | None = None
    """The key, or `${VARIABLE}`."""
    model: str = "voxtral-mini-latest"
    """The model's name."""
    timestamps: bool = True
    """Whether chunks have timestamps."""


class ElevenLabsSpeechSettings(MistralSpeechSettings):
    """ElevenLabs' speech recognition."""

    model: str = "scribe"
    """The model's name."""


class SpeechSettings(Section):
    """Speech recognition."""

    provider: Literal["mistral", "elevenlabs"] = "mistral"
    """The provider that transcribes."""
    mistral: MistralSpeechSettings = MistralSpeechSettings()
    elevenlabs: ElevenLabsSpeechSettings = ElevenLabsSpeechSettings()


class DirectorySettings(Section):
    """Where the directory and its state are."""

    root: str = "."
    """The directory."""
    state_dir: str | None = None
    """The state directory. Default: `.dir2mcp` in the directory."""
    when_locked: Literal["follow", "fail"] = "follow"
    """If another process indexes the same directory: search its index and take over when it ends, or fail."""


class SharedSections(Section):
    """The sections that the settings of the server and `.dir2mcp.yaml` have in common."""

    mistral: MistralSettings = MistralSettings()
    openai: OpenAISettings = OpenAISettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    chat: ChatSettings = ChatSettings()
    rerank: RerankSettings = RerankSettings()
    rag: RagSettings = RagSettings()
    ingest: IngestSettings = IngestSettings()
    chunking: ChunkingSettings = ChunkingSettings()
    stt: SpeechSettings = SpeechSettings()


class CorpusSettings(SharedSections, DirectorySettings, RestrictedSection):
    """One directory, indexed for search and cited answers."""

    roles: ClassVar[tuple[str, ...]] = (READ, WRITE, ADMINISTER)

    # The fields of the last base class come first.
    path_excludes: PathExcludes = DEFAULT_PATH_EXCLUDES
    """Patterns, as in .gitignore, of files that are neither indexed nor shown, in addition to the defaults.
    `!**/ca.pem` includes a file again."""
    secret_patterns: tuple[str, ...] = tuple(rule.pattern for rule in DEFAULT_RULES)
    """Regular expressions (RE2). A file that contains a match is neither indexed nor shown."""


def state_directory(root: Path, state_dir: str | None) -> Path:
    """The state directory of an indexed directory."""
    return Path(os.path.abspath(os.path.expanduser(state_dir))) if state_dir else root / STATE_DIRECTORY
