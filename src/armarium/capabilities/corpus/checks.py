"""The checks of `armarium doctor` for the corpus."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from armarium.capabilities.corpus.errors import CorpusError, ForeignState, IndexNotReady, RootInaccessible
from armarium.capabilities.corpus.index.ownership import require_own_index
from armarium.capabilities.corpus.index.state import is_being_indexed, read_status, root_directory
from armarium.capabilities.corpus.settings import CorpusSettings, state_directory
from armarium.capability import CheckResult, Facilities
from armarium.foundation.processes.isolation import available_isolation


def check(section: CorpusSettings | None, facilities: Facilities) -> Iterator[CheckResult]:
    """Check the directory and its state without changing anything."""
    if find_spec("openpyxl") is None:
        yield CheckResult("office packages", "warn", "Excel files are left out", "pip install 'armarium[office]'")
    if section is None:
        return
    yield _isolation(section)
    try:
        root = root_directory(section.root)
    except RootInaccessible as error:
        yield CheckResult("corpus root", "fail", error.message, error.hint)
        return
    yield CheckResult("corpus root", "ok", str(root))
    state_dir = state_directory(root, section.state_dir)
    yield from _warnings(state_dir, root)
    if not facilities.is_served and is_being_indexed(state_dir):
        yield CheckResult(
            "corpus state", "warn", "another process is indexing this directory", "use that server instead"
        )


def _isolation(section: CorpusSettings) -> CheckResult:
    subject, mode = "parser workers", section.ingest.isolation
    if mode == "off":
        return CheckResult(subject, "warn", "not isolated", "remove `isolation: off` from the ingest section")
    isolation = available_isolation()
    if isolation.is_complete:
        return CheckResult(subject, "ok", f"isolated by Landlock {isolation.landlock} and seccomp")
    return CheckResult(
        subject,
        "fail" if mode == "required" else "warn",
        f"not fully isolated; missing: {isolation.missing}",
        "Linux 5.13 or later has both on x86_64 and aarch64; in a container, let its profile allow them",
    )


def _warnings(state_dir: Path, root: Path) -> Iterator[CheckResult]:
    """The warnings of the process that indexes the directory, or did so last."""
    try:
        require_own_index(state_dir, root)
        warnings = read_status(state_dir).get("warnings", ())
    except IndexNotReady:
        return
    except ForeignState as error:
        yield CheckResult("corpus state", "fail", error.message, error.hint)
        return
    except CorpusError as error:
        yield CheckResult("corpus state", "warn", error.message, error.hint)
        return
    for warning in warnings:
        yield CheckResult("corpus state", "warn", str(warning), "the log of the process that indexes has the details")
