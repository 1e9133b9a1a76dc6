"""The manifest of the corpus."""

from __future__ import annotations

import hashlib
import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from armarium.manifest import Manifest, ProgressDisplay, ServedDirectory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from armarium.capabilities.corpus.settings import CorpusSettings
    from armarium.capability import Capability, CheckResult, Facilities
    from armarium.command_line.host import CommandHost
    from armarium.foundation.events import Events
    from armarium.foundation.tools import ToolSpec

_INSTRUCTIONS = (
    "The corpus answers from an indexed directory. dir2mcp.search finds chunks, dir2mcp.ask answers with citations "
    "such as [path:L10-L42], dir2mcp.open_file shows the cited lines or page. Check citations before you rely on them."
)


def settings_model() -> type[CorpusSettings]:
    from armarium.capabilities.corpus.settings import CorpusSettings

    return CorpusSettings


@asynccontextmanager
async def open_capability(settings: CorpusSettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """Open the corpus for the duration of the block. It answers immediately and indexes in the background."""
    from armarium.capabilities.corpus.lifespan import open_service
    from armarium.capabilities.corpus.source import CorpusSource
    from armarium.capabilities.corpus.tools import bind_corpus_tools
    from armarium.capability import Capability

    service = open_service(settings, facilities.events, indexing="background", private_paths=facilities.private_paths)
    async with service as corpus:
        unregister = facilities.sources.register(CorpusSource(corpus, _root(settings).name or "root"))
        try:
            yield Capability("corpus", bind_corpus_tools(corpus), _INSTRUCTIONS)
        finally:
            unregister()


def check(section: CorpusSettings | None, facilities: Facilities) -> Iterable[CheckResult]:
    from armarium.capabilities.corpus import checks

    return checks.check(section, facilities)


def state_paths(section: CorpusSettings) -> list[Path]:
    """The state directory, with the index, the token and cached responses of providers."""
    from armarium.capabilities.corpus.settings import state_directory

    return [state_directory(_root(section), section.state_dir)]


def _root(section: CorpusSettings) -> Path:
    return Path(os.path.abspath(os.path.expanduser(section.root)))


def declared_tools() -> Sequence[ToolSpec]:
    """The tools, without a corpus behind them."""
    from armarium.capabilities.corpus.tools import TOOLS

    return [tool.spec for tool in TOOLS]


def directory_section(directory: ServedDirectory) -> dict[str, Any]:
    """The section for a served directory. The index of a read-only directory is stored in the server's state."""
    if directory.is_writable:
        return {"root": str(directory.path)}
    digest = hashlib.sha256(os.fsencode(directory.path)).hexdigest()[:16]
    return {"root": str(directory.path), "state_dir": str(directory.state_dir / "corpora" / digest)}


def progress_display(events: Events) -> ProgressDisplay:
    from armarium.capabilities.corpus.commands.progress.reports import progress_on_stderr

    return progress_on_stderr(events)


def run_dir2mcp(host: CommandHost) -> NoReturn:
    from armarium.capabilities.corpus.commands.app import main

    main(host)


MANIFEST = Manifest(
    "corpus",
    settings_model,
    open_capability,
    check=check,
    packages=("numpy", "onnxruntime", "tantivy", "tokenizers", "usearch"),
    state_paths=state_paths,
    declared_tools=declared_tools,
    programs={"dir2mcp": run_dir2mcp},
    directory_section=directory_section,
    progress_display=progress_display,
)
