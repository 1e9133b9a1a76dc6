"""Where a corpus is, how far indexing is and which models work on it: for `dir2mcp.stats`, and for `corpus.json`."""

from __future__ import annotations

from typing import Any

from armarium.capabilities.corpus.events import IndexProgress
from armarium.capabilities.corpus.resources import Parts
from armarium.capabilities.corpus.settings import PROTOCOL_VERSION

_WITHOUT_TEXT = ("binary_ignored", "archive")


def stats(parts: Parts, now: IndexProgress) -> dict[str, Any]:
    """What a caller is told."""
    return {
        "root": str(parts.root),
        "state_dir": str(parts.state_dir),
        "protocol_version": PROTOCOL_VERSION,
        "indexing": {
            "job_id": now.job_id,
            "running": now.running,
            "mode": now.mode,
            "scanned": now.scanned,
            "indexed": now.indexed,
            "skipped": now.skipped,
            "deleted": now.deleted,
            "representations": now.representations,
            "chunks_total": now.chunks_total,
            "embedded_ok": now.embedded_ok,
            "errors": now.errors,
        },
        "models": _model_names(parts),
    }


def summary(parts: Parts, now: IndexProgress) -> dict[str, Any]:
    """`corpus.json`: what another program may want to know without asking the server."""
    counts = parts.storage.documents.counts_by_type()
    read = sum(count for doc_type, count in counts.items() if doc_type not in _WITHOUT_TEXT)
    told = stats(parts, now)
    warnings = parts.health.warnings
    return {
        "root": told["root"],
        "profile": {
            "doc_counts": counts,
            "code_ratio": round(counts.get("code", 0) / read, 2) if read else 0.0,
        },
        "models": told["models"],
        "indexing": {name: value for name, value in told["indexing"].items() if name != "mode"},
    } | ({"warnings": warnings} if warnings else {})


def _model_names(parts: Parts) -> dict[str, str]:
    speech, models = parts.settings.stt, parts.models
    speech_model = speech.mistral.model if speech.provider == "mistral" else speech.elevenlabs.model
    return {
        "embed_text": models.embedders["text"].model,
        "embed_code": models.embedders["code"].model,
        "ocr": parts.settings.mistral.ocr_model,
        "stt_provider": speech.provider,
        "stt_model": speech_model,
        "chat": models.chat.model if models.chat is not None else "extractive",
    }
