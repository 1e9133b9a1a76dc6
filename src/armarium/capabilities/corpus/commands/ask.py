"""The commands `ask` and `reindex`, which use the index without a server."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Literal

import anyio

from armarium.capabilities.corpus.commands.exit_codes import IndexIncomplete, indexing_error
from armarium.capabilities.corpus.commands.options import CommonOptions
from armarium.capabilities.corpus.commands.progress.reports import (
    EventFeed,
    QuietReport,
    Report,
    choose_report,
    report_on_stderr,
)
from armarium.capabilities.corpus.commands.settings_loader import LoadedSettings, load, prepare_state
from armarium.capabilities.corpus.commands.wizard import supply_missing_keys
from armarium.capabilities.corpus.errors import ForeignState, IndexNotReady, StoreCorrupt
from armarium.capabilities.corpus.events import EmbeddingPaused, IndexingFailed, IndexProgress
from armarium.capabilities.corpus.index.ownership import require_own_index
from armarium.capabilities.corpus.index.state import is_being_indexed, may_write, read_status
from armarium.capabilities.corpus.lifespan import open_service
from armarium.capabilities.corpus.query.search import Filters
from armarium.capabilities.corpus.service import AskListener, Corpus, require_searchable
from armarium.capabilities.corpus.tools import ask_as_json
from armarium.command_line.output import printable, readable, say, show, show_json
from armarium.foundation.events import Events
from armarium.foundation.schema import Json
from armarium.foundation.telemetry import log_as_json
from armarium.foundation.tools import Args, Call, local_tool
from armarium.retrieval.spans import citation, span_from_json

_SNIPPET_LINES = 4
_LAST_EVENT_S = 1.0
_HEARTBEAT_S = 2.0
_STALLED_S = 300.0
"""Indexing without progress for this long has stalled. No single file may take as long."""


class AskRequest(Args):
    """A question, and the filters of the search."""

    text: str
    k: int | None = None
    mode: Literal["answer", "search_only"] = "answer"
    index: Literal["auto", "text", "code", "both"] = "auto"
    path_prefix: str | None = None
    file_glob: str | None = None
    doc_types: tuple[str, ...] = ()
    wait_s: float = 5.0
    """How long to wait for embeddings once the lexical index is complete."""


def ask(common: CommonOptions, question: AskRequest) -> None:
    """Answer on standard output. An incomplete index is continued first, for a limited time."""
    log_as_json("warning")
    require_searchable(question.text)
    loaded = load(common.location)
    supply_missing_keys(loaded, interactive=common.interactive)
    loaded.report_destinations(quiet=common.quiet)
    state = _state_of_index(loaded)
    if state == "partial" and is_being_indexed(loaded.state_dir):
        if not common.quiet:
            say("note: another process is indexing this directory; the answer uses what is indexed so far")
        state = "complete"
    if state != "complete":
        # A complete index may be on a read-only file system.
        prepare_state(loaded)
    if state == "none" and not common.quiet:
        say("this directory is not indexed yet; indexing it first")
    # Text is streamed, except for JSON output.
    on_text = None if common.as_json or question.mode == "search_only" else _show_part
    answer_request = partial(_answer, common, loaded, question, on_text, indexing=state != "complete")
    answer = anyio.run(answer_request, backend_options={"use_uvloop": True})
    if common.as_json:
        show_json(answer)
    else:
        _show_answer(answer, streamed=on_text is not None)


async def _answer(
    common: CommonOptions,
    loaded: LoadedSettings,
    question: AskRequest,
    on_text: Callable[[str], None] | None,
    *,
    indexing: bool,
) -> dict[str, Any]:
    events = Events()
    report = report_on_stderr() if indexing and not common.quiet else None
    feed = EventFeed(events, report or QuietReport(), paused=False, on_failure=lambda: None)
    index_wait = IndexWait(events, report)
    settings, mode = loaded.corpus_settings(), "background" if indexing else "none"
    async with open_service(settings, events, indexing=mode, private_paths=loaded.own_files) as corpus:
        try:
            if indexing:
                await index_wait.until_answerable(corpus, question.wait_s)
        finally:
            if report is not None:
                report.close()
        if feed.failure is not None:
            raise indexing_error(feed.failure)
        if not common.quiet:
            _report_missing_embeddings(corpus)

        async def ask(call: Call, args: AskRequest) -> Json:
            """Answer a question from the corpus."""
            filters = Filters(args.path_prefix, args.file_glob, args.doc_types)
            listener = AskListener(on_text) if on_text is not None else AskListener()
            asked = await corpus.ask(args.text, args.k, args.mode, args.index, filters, listener)
            reason = asked.results.lexical_only
            if on_text is None and reason is not None and not common.quiet:
                say(f"note: the question could not be embedded, so the search was lexical only: {reason}")
            return ask_as_json(args.text, asked, indexing_complete=corpus.indexing_complete)

        tool = local_tool("dir2mcp.ask", ask, subject=("", "path_prefix"), content_fields=frozenset({"text"}))
        core_settings = loaded.core_settings(common.host.settings_type, "none")
        arguments = question.model_dump(mode="json", exclude_none=True)
        return await common.host.call("corpus", tool, arguments, settings=core_settings)


class IndexWait:
    """Follows indexing, and waits until a question can be answered. With a report, it repeats the latest progress at an
    interval, so that the wait is never silent."""

    def __init__(
        self, events: Events, report: Report | None, *, interval_s: float = _HEARTBEAT_S, stalled_s: float = _STALLED_S
    ) -> None:
        self._interval_s = interval_s
        self._stalled_s = stalled_s
        self._report = report
        self._latest: IndexProgress | None = None
        self._progress_at = anyio.current_time()
        self._lexical_complete = anyio.Event()
        self._embedding_ended = anyio.Event()
        events.subscribe(IndexProgress, self._progress)
        events.subscribe(EmbeddingPaused, self._paused)
        events.subscribe(IndexingFailed, self._failed)

    async def until_answerable(self, corpus: Corpus, vectors_s: float) -> None:
        """Return once indexing is complete, or `vectors_s` seconds after the lexical index is complete."""

        async def first(enough: Callable[[], Awaitable[None]]) -> None:
            await enough()
            tasks.cancel_scope.cancel()

        async def lexical_index_and_some_vectors() -> None:
            await self._lexical_complete.wait()
            with anyio.move_on_after(vectors_s):
                await self._embedding_ended.wait()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first, corpus.until_indexed)
            tasks.start_soon(first, lexical_index_and_some_vectors)
            tasks.start_soon(self._report_and_check)

    async def _report_and_check(self) -> None:
        while True:
            await anyio.sleep(self._interval_s)
            if self._report is not None and self._latest is not None:
                self._report.progress(self._latest)
            if anyio.current_time() - self._progress_at > self._stalled_s:
                raise IndexNotReady(
                    f"indexing has made no progress for {self._stalled_s:.0f} seconds",
                    hint="check whether another process indexes this directory: dir2mcp status",
                )

    async def _progress(self, event: IndexProgress) -> None:
        if event != self._latest:
            self._progress_at = anyio.current_time()
        self._latest = event
        if event.phase == "embed":
            self._lexical_complete.set()

    async def _paused(self, event: EmbeddingPaused) -> None:
        self._embedding_ended.set()

    async def _failed(self, event: IndexingFailed) -> None:
        self._embedding_ended.set()
        self._lexical_complete.set()


def _report_missing_embeddings(corpus: Corpus) -> None:
    counts = corpus.stats()["indexing"]
    if counts["embedded_ok"] < counts["chunks_total"]:
        say(
            f"note: {counts['embedded_ok']} of {counts['chunks_total']} chunks are embedded so far; "
            "only lexical search finds the others. `dir2mcp up` embeds them; --wait waits longer for that."
        )


def _state_of_index(loaded: LoadedSettings) -> Literal["none", "partial", "complete"]:
    try:
        require_own_index(loaded.state_dir, loaded.root)
    except (IndexNotReady, ForeignState):
        return "none"
    except StoreCorrupt:
        # Whoever opens it reports how it is damaged.
        pass
    try:
        complete = read_status(loaded.state_dir)["indexing"].get("complete", True)
    except IndexNotReady:
        return "none"
    except StoreCorrupt:
        # Only the summary is damaged. Continuing to index rewrites it.
        return "partial"
    # A read-only index cannot be completed.
    return "complete" if complete or not may_write(loaded.state_dir) else "partial"


def _show_part(text: str) -> None:
    sys.stdout.write(readable(text))
    sys.stdout.flush()


def _show_answer(answer: Mapping[str, Any], *, streamed: bool) -> None:
    if streamed:
        show("" if "answer" in answer else "Nothing found.")
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
        show("Nothing found.")


def reindex(common: CommonOptions) -> None:
    """Rebuild the index, and return when it is complete."""
    log_as_json("warning")
    loaded = load(common.location)
    supply_missing_keys(loaded, interactive=common.interactive)
    prepare_state(loaded)
    loaded.report_destinations(quiet=common.quiet)
    report = choose_report(as_json=common.as_json, quiet=common.quiet)
    events = Events()
    feed = EventFeed(events, report, paused=False, on_failure=lambda: None)

    async def rebuild() -> None:
        settings = loaded.corpus_settings()
        async with open_service(settings, events, indexing="full", private_paths=loaded.own_files) as corpus:
            await corpus.until_indexed()
            # The last event may not have been delivered yet.
            with anyio.move_on_after(_LAST_EVENT_S):
                await feed.idle.wait()
            counts = corpus.stats()["indexing"]
            missing = counts["chunks_total"] - counts["embedded_ok"]
            if missing and feed.failure is None:
                raise IndexIncomplete(
                    f"{missing} chunks could not be embedded; only lexical search finds them",
                    hint="fix the provider's error, then run: dir2mcp up",
                )

    try:
        anyio.run(rebuild, backend_options={"use_uvloop": True})
    finally:
        report.close()
    if feed.failure is not None:
        raise indexing_error(feed.failure)
