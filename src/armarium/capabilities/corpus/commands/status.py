"""`dir2mcp status`: what is on disk, and whether somebody is at work on it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from armarium.capabilities.corpus.commands.output_mode import Manner
from armarium.capabilities.corpus.commands.settings_loader import Where, check_settings
from armarium.capabilities.corpus.errors import IndexNotReady, StateUnwritable
from armarium.capabilities.corpus.state import META_FILE, read_status
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.command_line.output import printable, show, show_json


def status(where: Where, manner: Manner) -> None:
    """What `corpus.json` says, and whether somebody is at work on it; raises what the next start would."""
    _, state_dir = where.places()
    check_settings(where)
    found = read_status(state_dir)
    _check_store(state_dir / META_FILE)
    if manner.as_json:
        show_json(found | {"state_dir": str(state_dir)})
        return
    counts = found["indexing"]
    if not manner.quiet:
        working = "indexing" if counts["running"] else "up to date" if found["serving"] else "no server running"
        show(f"Index: {state_dir}  ({working})")
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
    """Numbers about an index that cannot be opened would say that all is well; counting again tells soon enough."""
    if not file.is_file() or not file.stat().st_size:
        raise IndexNotReady("there is no index here any more", hint="run: dir2mcp up")
    with suppress(StateUnwritable):  # Reading may need to write where a server was killed; that is not its fault.
        storage = Storage(file, read_only=True)
        try:
            storage.counts()
        finally:
            storage.close()
