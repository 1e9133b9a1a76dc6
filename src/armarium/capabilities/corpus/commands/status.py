"""The command `status`: shows the stored progress of indexing, and whether a server runs."""

from __future__ import annotations

from armarium.capabilities.corpus.commands.options import CommonOptions
from armarium.capabilities.corpus.commands.settings_loader import check_settings
from armarium.capabilities.corpus.index.ownership import require_own_index
from armarium.capabilities.corpus.index.state import read_status
from armarium.command_line.output import printable, show, show_json


def status(common: CommonOptions) -> None:
    """Show `corpus.json`, and whether a server runs; raises the errors that the next start would raise."""
    root, state_dir = common.location.resolve()
    check_settings(common.location)
    # The counters do not show whether the index is this user's, and can be opened.
    require_own_index(state_dir, root)
    found = read_status(state_dir)
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
