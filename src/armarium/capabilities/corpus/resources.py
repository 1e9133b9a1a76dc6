"""What an open corpus is made of, for everything that works on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.health import Health
from armarium.capabilities.corpus.model_choice import Models
from armarium.capabilities.corpus.settings import CorpusSettings
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.foundation.events import Events
from armarium.foundation.files.confine import ConfinedRoot


@dataclass(frozen=True, slots=True)
class Parts:
    """What stays open from the beginning of a corpus's life to its end."""

    settings: CorpusSettings
    root: Path
    state_dir: Path
    confined: ConfinedRoot
    """The root, as files in it are opened."""
    own_paths: Sequence[str]
    """Patterns of what in it is the server's own."""
    exclusion: Exclusion
    storage: Storage
    models: Models
    events: Events
    health: Health = field(default_factory=Health)
