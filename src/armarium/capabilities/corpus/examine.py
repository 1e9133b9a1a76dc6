"""What `armarium doctor` finds out about the corpus before a start."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from armarium.capabilities.corpus.errors import RootInaccessible
from armarium.capabilities.corpus.settings import CorpusSettings
from armarium.capabilities.corpus.state import is_being_indexed, root_directory, state_directory
from armarium.capability import Facilities, Finding


def examine(section: CorpusSettings | None, facilities: Facilities) -> Iterator[Finding]:
    """Look at the directory and its state; change nothing."""
    if find_spec("openpyxl") is None:
        yield Finding("office packages", "warn", "Excel files are left out", "pip install 'armarium[office]'")
    if section is None:
        return
    try:
        root = root_directory(section.root)
    except RootInaccessible as error:
        yield Finding("corpus root", "fail", error.message, error.hint)
        return
    yield Finding("corpus root", "ok", str(root))
    if is_being_indexed(state_directory(root, section.state_dir)):
        yield Finding("corpus state", "warn", "another process is indexing this directory", "use that server instead")
