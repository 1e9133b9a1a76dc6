"""The commands that need the engine and no server: `ask` and `reindex`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import anyio

from armarium.capabilities.corpus.commands.exit_codes import IndexIncomplete, cannot_index
from armarium.capabilities.corpus.commands.index_wait import Waiting
from armarium.capabilities.corpus.commands.output_mode import Manner
from armarium.capabilities.corpus.commands.progress.display import report_on_stderr
from armarium.capabilities.corpus.commands.progress.event_feed import Feed
from armarium.capabilities.corpus.commands.reports import QuietReport, choose_report
from armarium.capabilities.corpus.commands.settings_loader import Loaded, Where, load, prepare_state
from armarium.capabilities.corpus.commands.wizard import supply_missing_keys
from armarium.capabilities.corpus.errors import IndexNotReady, StoreCorrupt
from armarium.capabilities.corpus.life import open_service
from armarium.capabilities.corpus.searching import Filters
from armarium.capabilities.corpus.service import Corpus, require_searchable
from armarium.capabilities.corpus.state import META_FILE, is_being_indexed, may_write, read_status
from armarium.capabilities.corpus.tools import ask_as_json
from armarium.command_line.host import CommandHost
from armarium.command_line.output import printable, readable, say, show, show_json
from armarium.foundation.events import Events
from armarium.foundation.schema import Json
from armarium.foundation.telemetry import log_as_json
from armarium.foundation.tools import Args, Call, local_tool
from armarium.retrieval.spans import citation, span_from_json

_SNIPPET_LINES = 4
_LAST_NEWS_S = 1.0


class Question(Args):
    """A question, and which documents to answer it from."""

    text: str
    k: int | None = None
    mode: Literal["answer", "search_only"] = "answer"
    index: Literal["auto", "text", "code", "both"] = "auto"
    path_prefix: str | None = None
    file_glob: str | None = None
    doc_types: tuple[str, ...] = ()
    wait_s: float = 5.0
    """How long to wait for vectors once everything can be found by its words."""


def ask(host: CommandHost, where: Where, question: Question, manner: Manner) -> None:
    """Answer on standard output; in a directory that is not indexed whole, go on with that first, for a while."""
    log_as_json("warning")
    require_searchable(question.text)
    loaded = load(where)
    supply_missing_keys(loaded, interactive=manner.interactive)
    state = _state_of_index(loaded)
    if state == "partial" and is_being_indexed(loaded.state_dir):
        if not manner.quiet:
            say("note: another process is indexing this directory; this answers from what it has so far")
        state = "complete"
    if state != "complete":
        # An index that is complete answers from where nothing may be written.
        prepare_state(loaded)
    if state == "none" and not manner.quiet:
        say("nothing is indexed here yet; that comes first")
    # Text is shown as it comes, unless a program wants the whole.
    on_text = None if manner.as_json or question.mode == "search_only" else _show_part
    told = partial(_answer, host, loaded, question, state != "complete", on_text, quiet=manner.quiet)
    answer = anyio.run(told, backend_options={"use_uvloop": True})
    if manner.as_json:
        show_json(answer)
    else:
        _show_answer(answer, shown=on_text is not None)


async def _answer(
    host: CommandHost,
    loaded: Loaded,
    question: Question,
    indexing: bool,
    on_text: Callable[[str], None] | None,
    *,
    quiet: bool,
) -> dict[str, Any]:
    events = Events()
    report = report_on_stderr() if indexing and not quiet else None
    feed = Feed(events, report or QuietReport(), waits=False, on_failure=lambda: None)
    waiting = Waiting(events, report)
    settings = loaded.corpus_settings()
    async with open_service(settings, events, indexing="background" if indexing else "none") as corpus:
        try:
            if indexing:
                await waiting.until_answerable(corpus, question.wait_s)
        finally:
            if report is not None:
                report.close()
        if feed.failure is not None:
            raise cannot_index(feed.failure)
        if not quiet:
            _tell_what_is_missing(corpus)

        async def ask(call: Call, args: Question) -> Json:
            """Answer a question from the corpus."""
            filters = Filters(args.path_prefix, args.file_glob, args.doc_types)
            asked = await corpus.ask(args.text, args.k, args.mode, args.index, filters, on_text)
            if on_text is None and asked.results.words_only is not None and not quiet:
                say(f"note: the question could not be embedded, so words alone found this: {asked.results.words_only}")
            return ask_as_json(args.text, asked, indexing_complete=corpus.indexing_complete)

        tool = local_tool("dir2mcp.ask", ask, subject=("", "path_prefix"), content_fields=frozenset({"text"}))
        core_settings = loaded.core_settings(host.settings_type, "none")
        arguments = question.model_dump(mode="json", exclude_none=True)
        return await host.call("corpus", tool, arguments, settings=core_settings)


def _tell_what_is_missing(corpus: Corpus) -> None:
    counts = corpus.stats()["indexing"]
    if counts["embedded_ok"] < counts["chunks_total"]:
        say(
            f"note: {counts['embedded_ok']} of {counts['chunks_total']} passages are embedded so far; "
            "the others are found by their words. `dir2mcp up` embeds the rest, and --wait waits for it."
        )


def _state_of_index(loaded: Loaded) -> Literal["none", "partial", "complete"]:
    if not os.path.isfile(loaded.state_dir / META_FILE):
        return "none"
    try:
        complete = read_status(loaded.state_dir)["indexing"].get("complete", True)
    except IndexNotReady:
        return "none"
    except StoreCorrupt:
        # Only the summary is damaged. Going on with the index writes it again.
        return "partial"
    # What cannot be written cannot be completed, either.
    return "complete" if complete or not may_write(loaded.state_dir) else "partial"


def _show_part(text: str) -> None:
    sys.stdout.write(readable(text))
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
