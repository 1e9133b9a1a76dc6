"""The commands that need the engine and no server: `ask` and `reindex`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import anyio

from armarium.capabilities.corpus.errors import IndexNotReady
from armarium.capabilities.corpus.life import open_service
from armarium.capabilities.corpus.searching import Filters
from armarium.capabilities.corpus.state import META_FILE, read_status
from armarium.capabilities.corpus.tools import ask_as_json
from armarium.foundation.events import Events
from armarium.foundation.telemetry import log_as_json
from armarium.retrieval.spans import citation, span_from_json
from armarium.surfaces.cli.dir2mcp.ending import IndexIncomplete, cannot_index
from armarium.surfaces.cli.dir2mcp.loading import Loaded, Where, load, prepare_state
from armarium.surfaces.cli.dir2mcp.manner import Manner
from armarium.surfaces.cli.dir2mcp.reports import QuietReport, choose_report
from armarium.surfaces.cli.dir2mcp.wizard import supply_missing_keys
from armarium.surfaces.cli.indexing_progress.feed import Feed
from armarium.surfaces.cli.output import printable, say, show, show_json

_SNIPPET_LINES = 4
_LAST_NEWS_S = 1.0


@dataclass(frozen=True, slots=True)
class Question:
    """What to answer, and from what."""

    text: str
    k: int | None = None
    mode: Literal["answer", "search_only"] = "answer"
    index: Literal["auto", "text", "code", "both"] = "auto"
    path_prefix: str | None = None
    file_glob: str | None = None
    doc_types: tuple[str, ...] = ()


def ask(where: Where, question: Question, manner: Manner) -> None:
    """Answer on standard output; in a directory without an index, make one first."""
    log_as_json("warning")
    loaded = load(where)
    supply_missing_keys(loaded, interactive=manner.interactive)
    known = _has_index(loaded)
    if not known:
        # An index that is complete answers from where nothing may be written.
        prepare_state(loaded)
    if not known and not manner.quiet:
        say("nothing is indexed here yet; that comes first")
    # Text is shown as it comes, unless a program wants the whole.
    on_text = None if manner.as_json or question.mode == "search_only" else _show_part
    answer = anyio.run(_answer, loaded, question, known, on_text, backend_options={"use_uvloop": True})
    if manner.as_json:
        show_json(answer)
    else:
        _show_answer(answer, shown=on_text is not None)


async def _answer(
    loaded: Loaded, question: Question, known: bool, on_text: Callable[[str], None] | None
) -> dict[str, Any]:
    events = Events()
    feed = Feed(events, QuietReport(), waits=False, on_failure=lambda: None)
    async with open_service(loaded.corpus_settings(), events, indexing="none" if known else "background") as corpus:
        if not known:
            await corpus.until_indexed()
        if feed.failure is not None:
            raise cannot_index(feed.failure)
        filters = Filters(question.path_prefix, question.file_glob, question.doc_types)
        asked = await corpus.ask(question.text, question.k, question.mode, question.index, filters, on_text)
        return ask_as_json(question.text, asked, indexing_complete=corpus.indexing_complete)


def _has_index(loaded: Loaded) -> bool:
    if not os.path.isfile(loaded.state_dir / META_FILE):
        return False
    try:
        read_status(loaded.state_dir)
    except IndexNotReady:
        return False
    return True


def _show_part(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _show_answer(answer: Mapping[str, Any], *, shown: bool) -> None:
    if shown:
        show("" if "answer" in answer else "Nothing was found.")
        cited = list(
            dict.fromkeys(citation(each["rel_path"], span_from_json(each["span"])) for each in answer["citations"])
        )
        if cited:
            show("\nSources:\n" + "\n".join(f"  {printable(source)}" for source in cited))
        return
    for number, hit in enumerate(answer["hits"], 1):
        show(f"{number}. {printable(citation(hit['rel_path'], span_from_json(hit['span'])))}  ({hit['score']:.3f})")
        for line in hit["snippet"].splitlines()[:_SNIPPET_LINES]:
            show(f"   {printable(line)}")
    if not answer["hits"]:
        show("Nothing was found.")


def reindex(where: Where, manner: Manner) -> None:
    """Build the index anew, and end when it is complete."""
    log_as_json("warning")
    loaded = load(where)
    supply_missing_keys(loaded, interactive=manner.interactive)
    prepare_state(loaded)
    report = choose_report(manner)
    events = Events()
    feed = Feed(events, report, waits=False, on_failure=lambda: None)

    async def build() -> None:
        async with open_service(loaded.corpus_settings(), events, indexing="full") as corpus:
            await corpus.until_indexed()
            # The last news may still be on its way.
            with anyio.move_on_after(_LAST_NEWS_S):
                await feed.at_rest.wait()
            counts = corpus.stats()["indexing"]
            missing = counts["chunks_total"] - counts["embedded_ok"]
            if missing and feed.failure is None:
                raise IndexIncomplete(
                    f"{missing} passages could not be embedded; they are found by their words alone",
                    hint="mend what the provider said and run: dir2mcp up",
                )

    try:
        anyio.run(build, backend_options={"use_uvloop": True})
    finally:
        report.close()
    if feed.failure is not None:
        raise cannot_index(feed.failure)
