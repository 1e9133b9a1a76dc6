"""The status of a corpus: its location, indexing progress and models, for `dir2mcp.stats` and `corpus.json`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from armarium.capabilities.corpus.events import IndexProgress
from armarium.capabilities.corpus.resources import Resources
from armarium.capabilities.corpus.settings import PROTOCOL_VERSION

_WITHOUT_TEXT = ("binary_ignored", "archive")
_EVENT_ONLY = ("phase", "files_known")


def stats(resources: Resources, now: IndexProgress) -> dict[str, Any]:
    """The result of `dir2mcp.stats`."""
    return {
        "root": str(resources.root),
        "state_dir": str(resources.state_dir),
        "protocol_version": PROTOCOL_VERSION,
        "indexing": {name: value for name, value in asdict(now).items() if name not in _EVENT_ONLY},
        "models": dict(resources.model_names),
    }


def summary(resources: Resources, now: IndexProgress) -> dict[str, Any]:
    """The content of `corpus.json`, for programs that do not call the server."""
    counts = resources.storage.documents.counts_by_type()
    with_text = sum(count for doc_type, count in counts.items() if doc_type not in _WITHOUT_TEXT)
    status = stats(resources, now)
    warnings = resources.health.warnings
    return {
        "root": status["root"],
        "profile": {
            "doc_counts": counts,
            "code_ratio": round(counts.get("code", 0) / with_text, 2) if with_text else 0.0,
        },
        "models": status["models"],
        "indexing": {name: value for name, value in status["indexing"].items() if name != "mode"},
    } | ({"warnings": warnings} if warnings else {})
