"""What an open corpus consists of: the objects that stay open for its whole lifespan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.health import Health
from armarium.capabilities.corpus.model_choice import Models
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.foundation.events import Events
from armarium.foundation.files.confine import ConfinedRoot


@dataclass(frozen=True, slots=True)
class Resources:
    """Everything that search and indexing share."""

    root: Path
    state_dir: Path
    confined: ConfinedRoot
    """The root, through which files are opened."""
    exclusion: Exclusion
    storage: Storage
    models: Models
    model_names: Mapping[str, str]
    """The names of all models by role, for the status."""
    events: Events
    health: Health = field(default_factory=Health)
