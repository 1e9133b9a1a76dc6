"""The manifest of the corpus."""

from __future__ import annotations

import hashlib
import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from armarium.manifest import Manifest, ProgressDisplay, ServedDirectory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from armarium.capabilities.corpus.settings import CorpusSettings
    from armarium.capability import Capability, CheckResult, Facilities
    from armarium.command_line.host import CommandHost
    from armarium.foundation.events import Events

_INSTRUCTIONS = (
    "The corpus answers from an indexed directory. dir2mcp.search finds passages, dir2mcp.ask answers with citations "
    "such as [path:L10-L42], dir2mcp.open_file shows the cited lines or page. Check citations before you rely on them."
)


def settings_model() -> type[CorpusSettings]:
    """The model of its section."""
    from armarium.capabilities.corpus.settings import CorpusSettings

    return CorpusSettings


@asynccontextmanager
async def open_corpus(settings: CorpusSettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """The capability, for as long as the block runs. It answers at once; the index grows behind it."""
    from armarium.capabilities.corpus.life import open_service
    from armarium.capabilities.corpus.source import CorpusSource
    from armarium.capabilities.corpus.tools import corpus_tools
    from armarium.capability import Capability

    service = open_service(settings, facilities.events, indexing="background", private_paths=facilities.private_paths)
    async with service as corpus:
        unregister = facilities.sources.register(CorpusSource(corpus, _root(settings).name or "root"))
        try:
            yield Capability("corpus", corpus_tools(corpus), _INSTRUCTIONS)
        finally:
            unregister()


def check_corpus(section: CorpusSettings | None, facilities: Facilities) -> Iterable[CheckResult]:
    """What `armarium doctor` is told."""
    from armarium.capabilities.corpus.checks import check

    return check(section, facilities)


def corpus_state_paths(section: CorpusSettings) -> list[Path]:
    """The state directory: the index, its token, and what providers answered."""
    from armarium.capabilities.corpus.settings import STATE_DIRECTORY

    return [Path(section.state_dir).expanduser() if section.state_dir else _root(section) / STATE_DIRECTORY]


def _root(section: CorpusSettings) -> Path:
    return Path(os.path.abspath(os.path.expanduser(section.root)))


def directory_section(directory: ServedDirectory) -> dict[str, Any]:
    """The directory. The index of one that cannot be written is stored with the server's state."""
    if directory.is_writable:
        return {"root": str(directory.path)}
    digest = hashlib.sha256(os.fsencode(directory.path)).hexdigest()[:16]
    return {"root": str(directory.path), "state_dir": str(directory.state_dir / "corpora" / digest)}


def progress_display(events: Events) -> ProgressDisplay:
    """The progress of indexing."""
    from armarium.capabilities.corpus.commands.progress.display import progress_on_stderr

    return progress_on_stderr(events)


def run_dir2mcp(host: CommandHost) -> NoReturn:
    """The `dir2mcp` program."""
    from armarium.capabilities.corpus.commands.app import main

    main(host)


MANIFEST = Manifest(
    "corpus",
    settings_model,
    open_corpus,
    check=check_corpus,
    packages=("numpy", "onnxruntime", "tantivy", "tokenizers", "usearch"),
    state_paths=corpus_state_paths,
    programs={"dir2mcp": run_dir2mcp},
    directory_section=directory_section,
    progress_display=progress_display,
)
