"""The manifest of the corpus."""

from __future__ import annotations

import hashlib
import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from armarium.manifest import DirectoryFlag, Manifest, ProgressDisplay, ServedDirectory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from armarium.capabilities.corpus.settings import CorpusSettings
    from armarium.capability import Capability, Facilities
    from armarium.command_line.host import CommandHost
    from armarium.foundation.events import Events
    from armarium.foundation.security.access import AccessRule
    from armarium.foundation.security.trust import Confirmable

_INSTRUCTIONS = (
    "The corpus answers from an indexed directory. dir2mcp.search finds chunks, dir2mcp.ask answers with citations "
    "such as [path:L10-L42], dir2mcp.open_file shows the cited lines or page. Check citations before you rely on them."
)


@asynccontextmanager
async def open_capability(settings: CorpusSettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """Open the corpus for the duration of the block. It answers immediately and indexes in the background."""
    from armarium.capabilities.corpus.ingest.announcements import announce
    from armarium.capabilities.corpus.ingest.rates import ProgressReporter
    from armarium.capabilities.corpus.knowledge import CorpusKnowledge
    from armarium.capabilities.corpus.lifespan import open_service
    from armarium.capabilities.corpus.route_tools import ROUTE_TOOLS, ROUTES, CorpusApi
    from armarium.capabilities.corpus.source import CorpusSource
    from armarium.capabilities.corpus.tools import bind_corpus_tools
    from armarium.capability import Capability
    from armarium.foundation.files.credential_files import CREDENTIAL_FILES
    from armarium.foundation.files.path_rules import added_patterns
    from armarium.foundation.routes import bind_routes
    from armarium.foundation.security.access import Access
    from armarium.foundation.tools import bind_tools

    access, name, reporter = Access("corpus", settings.rule), _root(settings).name or "root", ProgressReporter()
    service = open_service(
        settings,
        facilities.events,
        indexing="background",
        private_paths=[*facilities.private_paths, *facilities.settings_files],
        hidden=added_patterns(facilities.credential_patterns, CREDENTIAL_FILES),
    )
    # First, so that it hears the events of the opening.
    async with announce(facilities.events, reporter), service as corpus:
        unregister = facilities.sources.register(CorpusSource(corpus, name, access))
        tools = bind_corpus_tools(corpus, access)
        api = CorpusApi(corpus, name, reporter)
        routes = bind_routes(ROUTES, [*tools, *bind_tools(ROUTE_TOOLS, api, access)])
        knowledge = CorpusKnowledge(corpus, name)
        try:
            yield Capability("corpus", tools, _INSTRUCTIONS, routes, access=access, knowledge=knowledge)
        finally:
            unregister()


def state_paths(section: CorpusSettings) -> list[Path]:
    """The state directory, with the index, the token and cached responses of providers."""
    from armarium.capabilities.corpus.settings import state_directory

    return [state_directory(_root(section), section.state_dir)]


def _root(section: CorpusSettings) -> Path:
    return Path(os.path.abspath(os.path.expanduser(section.root)))


def readable_directories(section: CorpusSettings) -> Iterable[tuple[str, Path, AccessRule]]:
    return [("the corpus", _root(section), section.rule)]


def directory_section(directory: ServedDirectory) -> dict[str, Any]:
    """The section for a served directory. The index of a read-only directory is stored in the server's state."""
    if directory.is_writable:
        return {"root": str(directory.path)}
    digest = hashlib.sha256(os.fsencode(directory.path)).hexdigest()[:16]
    return {"root": str(directory.path), "state_dir": str(directory.state_dir / "corpora" / digest)}


def confirmable_files(directory: Path, section: CorpusSettings | None) -> Iterable[Confirmable]:
    """`.dir2mcp.yaml`, and the keys beside it. Only `dir2mcp` uses them."""
    if section is not None:
        return ()
    from armarium.capabilities.corpus.commands.trusted_files import files_to_confirm

    return files_to_confirm(directory)


def destinations(section: CorpusSettings) -> Iterable[tuple[str, str]]:
    """The hosted models that the index and the settings name."""
    from armarium.capabilities.corpus.lifespan import text_destinations

    return text_destinations(section)


def progress_display(events: Events) -> ProgressDisplay:
    from armarium.capabilities.corpus.commands.progress.reports import progress_on_stderr

    return progress_on_stderr(events)


def run_dir2mcp(host: CommandHost) -> NoReturn:
    from armarium.capabilities.corpus.commands.app import main

    main(host)


MANIFEST = Manifest(
    "corpus",
    open_capability,
    packages=("numpy", "onnxruntime", "tantivy", "tokenizers", "usearch"),
    state_paths=state_paths,
    readable_directories=readable_directories,
    programs={"dir2mcp": run_dir2mcp},
    directory_section=directory_section,
    confirmable_files=confirmable_files,
    destinations=destinations,
    directory_flag=DirectoryFlag(
        "index", "Index the directory, so that agents can search it and ask questions about it."
    ),
    progress_display=progress_display,
)
