"""The way into the corpus. What it is made of is imported when it is opened: other servers do not wait for it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from armarium.capabilities.corpus.settings import STATE_DIRECTORY, CorpusSettings
from armarium.capability import Capability, CheckResult, Facilities, Manifest

_INSTRUCTIONS = (
    "The corpus answers from an indexed directory. dir2mcp.search finds chunks, dir2mcp.ask answers with citations "
    "such as [path:L10-L42], dir2mcp.open_file shows the cited lines or page. Check citations before you rely on them."
)


@asynccontextmanager
async def open_corpus(settings: CorpusSettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """The capability, for as long as the block runs. It answers at once; the index grows behind it."""
    from armarium.capabilities.corpus.lifespan import open_service
    from armarium.capabilities.corpus.source import CorpusSource
    from armarium.capabilities.corpus.tools import bind_corpus_tools

    service = open_service(settings, facilities.events, indexing="background", private_paths=facilities.private_paths)
    async with service as corpus:
        unregister = facilities.sources.register(CorpusSource(corpus, _root(settings).name or "root"))
        try:
            yield Capability("corpus", bind_corpus_tools(corpus), _INSTRUCTIONS)
        finally:
            unregister()


def check_corpus(section: CorpusSettings | None, facilities: Facilities) -> Iterable[CheckResult]:
    """What `armarium doctor` is told."""
    from armarium.capabilities.corpus.checks import check

    return check(section, facilities)


def corpus_state_paths(section: CorpusSettings) -> list[Path]:
    """The state directory: the index, its token, and what providers answered."""
    return [Path(section.state_dir).expanduser() if section.state_dir else _root(section) / STATE_DIRECTORY]


def _root(section: CorpusSettings) -> Path:
    return Path(os.path.abspath(os.path.expanduser(section.root)))


MANIFEST = Manifest(
    "corpus",
    CorpusSettings,
    open_corpus,
    check=check_corpus,
    packages=("numpy", "onnxruntime", "tantivy", "tokenizers", "usearch"),
    state_paths=corpus_state_paths,
)
