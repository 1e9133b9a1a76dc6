"""The command `status`: shows the stored progress of indexing, and whether a server runs."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path

from armarium.capabilities.corpus.commands.options import CommonOptions
from armarium.capabilities.corpus.commands.settings_loader import check_settings
from armarium.capabilities.corpus.errors import IndexNotReady, IngestionFailed
from armarium.capabilities.corpus.index.state import META_FILE, read_status
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.command_line.output import printable, show, show_json


def status(common: CommonOptions) -> None:
    """Show `corpus.json`, and whether a server runs; raises the errors that the next start would raise."""
    _, state_dir = common.location.resolve()
    check_settings(common.location)
    found = read_status(state_dir)
    _check_store(state_dir / META_FILE)
    if common.as_json:
        show_json(found | {"state_dir": str(state_dir)})
        return
    counts = found["indexing"]
    if not common.quiet:
        activity = "indexing" if counts["running"] else "up to date" if found["serving"] else "no server running"
        show(f"Index: {state_dir}  ({activity})")
        show(f"Root: {found['root']}")
        documents = " ".join(f"{kind}={count}" for kind, count in found["profile"]["doc_counts"].items())
        show(f"Documents: {documents or 'none'}")
        models = found["models"]
        show(f"Models: text={models['embed_text']} code={models['embed_code']} chat={models['chat']}")
    show(
        f"Progress: scanned={counts['scanned']} indexed={counts['indexed']} skipped={counts['skipped']}"
        f" deleted={counts['deleted']} reps={counts['representations']} chunks={counts['chunks_total']}"
        f" embedded={counts['embedded_ok']} errors={counts['errors']}"
    )
    for warning in found.get("warnings", ()):
        show(f"Warning: {printable(str(warning))}")


def _check_store(file: Path) -> None:
    """Raise if the index cannot be opened, because the counters in `corpus.json` do not show that."""
    if not file.is_file() or not file.stat().st_size:
        raise IndexNotReady("there is no index", hint="run: dir2mcp up")
    # After a crash, SQLite may need to write before it can read.
    with suppress(IngestionFailed), closing(Storage(file, read_only=True)) as storage:
        storage.counts()
