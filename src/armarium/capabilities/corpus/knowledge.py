"""Describes a file by its document in the corpus."""

from __future__ import annotations

from typing import Any

from anyio.to_thread import run_sync

from armarium.capabilities.corpus.service import Corpus
from armarium.foundation.files.names import escape_name, unescape_name
from armarium.foundation.known_files import LocatedFile
from armarium.foundation.refs import FileRef
from armarium.foundation.tools import Call


class CorpusKnowledge:
    """Documents of the indexed directory."""

    scheme = "corpus"

    def __init__(self, corpus: Corpus, name: str) -> None:
        """`name` is that of the directory in references."""
        self._corpus = corpus
        self._name = name
        self._documents = corpus.resources.storage.documents

    async def locate(self, call: Call, ref: FileRef) -> LocatedFile:
        if ref.space != self._name or await run_sync(self._documents.state, ref.path) is None:
            return LocatedFile(ref)
        # The index has only names that it has escaped itself.
        return LocatedFile(ref, f"{self._directory}/{unescape_name(ref.path)}")

    async def describe(self, call: Call, file: LocatedFile) -> dict[str, Any] | None:
        path = file.path_below(self._directory)
        if path is None:
            return None
        rel_path = escape_name(path)
        state = await run_sync(self._documents.state, rel_path)
        if state is None:
            return None
        doc_type, status, _ = state
        ref = FileRef("corpus", self._name, rel_path)
        return {"rel_path": rel_path, "ref": str(ref), "doc_type": doc_type, "status": status}

    @property
    def _directory(self) -> str:
        return self._corpus.resources.confined.real_path
