"""What an open corpus consists of: the objects that stay open for its whole lifespan, and their status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from armarium.capabilities.corpus.events import IndexProgress
from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.health import Health
from armarium.capabilities.corpus.model_choice import Models
from armarium.capabilities.corpus.settings import PROTOCOL_VERSION, CorpusSettings
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.foundation.events import Events
from armarium.foundation.files.confine import ConfinedRoot

_WITHOUT_TEXT = ("binary_ignored", "archive")
_EVENT_ONLY = ("phase", "files_known")


@dataclass(frozen=True, slots=True)
class Resources:
    """Everything that search and indexing share."""

    root: Path
    state_dir: Path
    confined: ConfinedRoot
    """The root, through which files are opened."""
    exclusion: Exclusion
    storage: Storage
    settings: CorpusSettings
    models: Models
    model_names: Mapping[str, str]
    """The names of all models by role, for the status."""
    events: Events
    health: Health = field(default_factory=Health)

    def stats(self, now: IndexProgress) -> dict[str, Any]:
        """The result of `dir2mcp.stats`."""
        return {
            "root": str(self.root),
            "state_dir": str(self.state_dir),
            "protocol_version": PROTOCOL_VERSION,
            "indexing": {name: value for name, value in asdict(now).items() if name not in _EVENT_ONLY},
            "models": dict(self.model_names),
        }

    def summary(self, now: IndexProgress) -> dict[str, Any]:
        """The content of `corpus.json`, for programs that do not call the server."""
        counts: dict[str, int] = dict(self.storage.read("doc_counts"))
        with_text = sum(count for doc_type, count in counts.items() if doc_type not in _WITHOUT_TEXT)
        status, warnings = self.stats(now), self.health.warnings
        return {
            "root": status["root"],
            "profile": {
                "doc_counts": counts,
                "code_ratio": round(counts.get("code", 0) / with_text, 2) if with_text else 0.0,
            },
            "models": status["models"],
            "indexing": {name: value for name, value in status["indexing"].items() if name != "mode"},
        } | ({"warnings": warnings} if warnings else {})
