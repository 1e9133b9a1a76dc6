"""The corpus's section of the settings, in the words of its own file `.dir2mcp.yaml`."""

from __future__ import annotations

import os
import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, SecretStr

from armarium.capabilities.corpus.files.exclusion import DEFAULT_PATH_EXCLUDES, with_default_excludes
from armarium.capabilities.corpus.files.secret_patterns import DEFAULT_RULES
from armarium.foundation.settings import Section

STATE_DIRECTORY = ".dir2mcp"
"""Where a directory's index lives, unless the settings say otherwise."""
MEGABYTE: Final = 1_000_000
PROTOCOL_VERSION: Final = "2025-11-25"
"""The revision of MCP that the corpus is written for: noted in the index, and told by `dir2mcp.stats`."""


def _from_environment(value: object) -> object:
    """`${VARIABLE}` stands for what is in the environment; nothing there is no key."""
    named = re.fullmatch(r"\$\{(\w+)\}", value.strip()) if isinstance(value, str) else None
    return os.environ.get(named[1], "") if named else value


Secret = Annotated[SecretStr, BeforeValidator(_from_environment), PlainSerializer(lambda secret: None)]
"""A key. It is never written out: settings that are printed have to name where it comes from again."""

PathExcludes = Annotated[tuple[str, ...], AfterValidator(with_default_excludes)]
"""Patterns besides the default ones, which stay in force and are part of the value."""


class MistralSettings(Section):
    """Mistral's models."""

    api_key: Secret | None = None
    """The key, or `${VARIABLE}`. Without one, nothing is sent to Mistral."""
    base_url: str = "https://api.mistral.ai"
    """Where the API is."""
    chat_model: str = "mistral-small-2506"
    """Writes answers."""
    embed_text_model: str = "mistral-embed"
    """Embeds text."""
    embed_code_model: str = "codestral-embed"
    """Embeds code."""
    ocr_model: str = "mistral-ocr-latest"
    """Reads scanned pages and images."""


class OpenAISettings(Section):
    """Any endpoint that speaks OpenAI's API: Ollama, vLLM, llama.cpp, OpenAI."""

    base_url: str = "http://127.0.0.1:11434/v1"
    """Where the API is, with its version."""
    api_key: Secret | None = None
    """The key, or `${VARIABLE}`; local servers need none."""
    chat_model: str | None = None
    """Writes answers."""
    embed_text_model: str | None = None
    """Embeds text."""
    embed_code_model: str | None = None
    """Embeds code; by default the one for text."""


class EmbeddingSettings(Section):
    """Who turns chunks into vectors."""

    provider: Literal["auto", "local", "mistral", "openai"] = "auto"
    """`auto`: what the index was built with; for a new one Mistral when a key is configured, otherwise `local`, which
    needs neither key nor network."""
    requests_per_minute: float | None = Field(default=None, gt=0)
    """How often a hosted provider may be asked, whatever it would allow."""


class ChatSettings(Section):
    """Who writes answers."""

    provider: Literal["auto", "none", "mistral", "openai"] = "auto"
    """`auto`: Mistral when a key is configured, else `openai` when a chat model is named, else none: then an answer is
    made of the best sentences found."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Longest time an answer may take."""


class RerankSettings(Section):
    """An optional second look at the best hits, by a Cohere-compatible endpoint."""

    base_url: str | None = None
    """Where the API is; without one nothing is reranked."""
    api_key: Secret | None = None
    """The key, or `${VARIABLE}`."""
    model: str = "rerank-v3.5"
    """The model's name."""
    timeout_s: float = Field(default=3.0, gt=0)
    """After this long the order stays as it was."""
    candidates: int = Field(default=30, ge=1, le=200)
    """How many hits get the second look."""


class RagSettings(Section):
    """Search and answers."""

    generate_answer: bool = True
    """Whether `ask` answers in words; otherwise it returns hits only."""
    k_default: int = Field(default=10, ge=1, le=50)
    """Hits when a call does not say how many."""
    system_prompt: str = "You are a retrieval-augmented assistant.\nUse citations and never invent sources.\n"
    """What the chat model is told first."""
    max_context_chars: int = Field(default=20_000, ge=500)
    """Most characters of retrieved text in a prompt."""
    oversample_factor: int = Field(default=5, ge=1)
    """How many times more neighbours are asked for than needed, because some are deleted or filtered out."""


class PdfSettings(Section):
    """PDFs."""

    mode: Literal["off", "ocr", "auto"] = "ocr"
    """`off`: not indexed; `auto`: digital text, OCR where there is none; `ocr`: OCR where a provider can do it."""


class ImageSettings(Section):
    """Images."""

    mode: Literal["off", "ocr_auto", "ocr_on"] = "ocr_auto"
    """Whether text in images is read, when a provider can."""


class AudioSettings(Section):
    """Recordings."""

    mode: Literal["off", "auto", "on"] = "auto"
    """Whether speech is transcribed, when a provider can."""
    cache: bool = True
    """Whether transcripts are kept for the next time."""


class ArchiveSettings(Section):
    """zip, tar and tar.gz files."""

    mode: Literal["off", "shallow", "deep"] = "deep"
    """`off`: not looked into; `shallow`: their members are indexed; `deep`: archives within archives, too."""


class IngestSettings(Section):
    """What is indexed."""

    gitignore: bool = True
    """Whether .gitignore files are obeyed."""
    pdf: PdfSettings = PdfSettings()
    images: ImageSettings = ImageSettings()
    audio: AudioSettings = AudioSettings()
    archives: ArchiveSettings = ArchiveSettings()
    follow_symlinks: bool = False
    """Whether links are followed; ever only to what is inside the root."""
    max_file_mb: float = Field(default=20, gt=0)
    """Larger files are skipped."""
    max_file_mb_by_type: dict[str, float] = Field(default_factory=dict)
    """Other limits for some document types, e.g. `pdf: 100`."""
    watch: bool = True
    """Whether changes are indexed as they happen."""
    max_state_gb: float = Field(default=20, gt=0)
    """Once the state directory is this large, no document is added; what is indexed stays searchable."""
    isolation: Literal["auto", "required", "off"] = "auto"
    """How the processes that read files are cut off from other files, the network and other processes. `auto`: as far
    as the kernel can (Landlock, seccomp); `required`: index nothing where it cannot; `off`: limits of memory and time
    only."""


class CodeChunkSettings(Section):
    """Chunks of code."""

    max_lines: int = Field(default=200, ge=5)
    """Most lines in a chunk."""
    overlap_lines: int = Field(default=30, ge=0)
    """Lines shared by neighbours where a definition had to be cut."""


class TranscriptChunkSettings(Section):
    """Chunks of recordings."""

    segment_ms: int = Field(default=30_000, ge=1000)
    """Length of a chunk."""
    overlap_ms: int = Field(default=5_000, ge=0)
    """Time shared by neighbours."""


class ChunkingSettings(Section):
    """How documents are cut into chunks."""

    max_chars: int = Field(default=2500, ge=200)
    """Most characters in a chunk."""
    overlap_chars: int = Field(default=250, ge=0)
    """Characters shared by neighbours where a paragraph had to be cut."""
    min_chars: int = Field(default=200, ge=0)
    """Shorter chunks are joined with their neighbours where their structure allows."""
    code: CodeChunkSettings = CodeChunkSettings()
    transcript: TranscriptChunkSettings = TranscriptChunkSettings()


class MistralSpeechSettings(Section):
    """Mistral's speech recognition."""

    api_key: Secret | None = None
    """The key, or `${VARIABLE}`."""
    model: str = "voxtral-mini-latest"
    """The model's name."""
    timestamps: bool = True
    """Whether chunks know their time."""


class ElevenLabsSpeechSettings(MistralSpeechSettings):
    """ElevenLabs' speech recognition."""

    model: str = "scribe"
    """The model's name."""


class SpeechSettings(Section):
    """Speech recognition."""

    provider: Literal["mistral", "elevenlabs"] = "mistral"
    """Whose models transcribe."""
    mistral: MistralSpeechSettings = MistralSpeechSettings()
    elevenlabs: ElevenLabsSpeechSettings = ElevenLabsSpeechSettings()


class CorpusSettings(Section):
    """One directory turned into cited answers."""

    root: str = "."
    """The directory."""
    state_dir: str | None = None
    """Where the index lives; by default `.dir2mcp` in the directory."""
    when_locked: Literal["follow", "fail"] = "follow"
    """When another process indexes the same directory: answer from its index and take over when it ends, or refuse."""
    mistral: MistralSettings = MistralSettings()
    openai: OpenAISettings = OpenAISettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    chat: ChatSettings = ChatSettings()
    rerank: RerankSettings = RerankSettings()
    rag: RagSettings = RagSettings()
    ingest: IngestSettings = IngestSettings()
    chunking: ChunkingSettings = ChunkingSettings()
    stt: SpeechSettings = SpeechSettings()
    path_excludes: PathExcludes = DEFAULT_PATH_EXCLUDES
    """Patterns, as in .gitignore, of files that are neither indexed nor shown, besides the default ones. `!**/ca.pem`
    shows a file again."""
    secret_patterns: tuple[str, ...] = tuple(rule.pattern for rule in DEFAULT_RULES)
    """Regular expressions (RE2); a file whose content one of them fits is neither indexed nor shown."""
