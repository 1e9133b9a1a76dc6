"""The routes of the corpus, and the tools that only they offer."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from armarium.capabilities.corpus.errors import hint_for
from armarium.capabilities.corpus.ingest.rates import ProgressReport, ProgressReporter
from armarium.capabilities.corpus.query.search import SearchResults
from armarium.capabilities.corpus.query.troubles import TroubleState, code_and_message
from armarium.capabilities.corpus.schemas import HIT, OUTPUT
from armarium.capabilities.corpus.service import AskListener, Corpus, require_searchable
from armarium.capabilities.corpus.tools import (
    AskArgs,
    ask_as_json,
    citations_as_json,
    contract_error,
    filters_of,
    hits_as_json,
)
from armarium.foundation.routes import declare_route
from armarium.foundation.schema import Json
from armarium.foundation.security.access import ADMINISTER
from armarium.foundation.tools import (
    ERROR_ENVELOPE,
    Args,
    Call,
    DeclaredTool,
    NoArgs,
    declare_tool,
    no_text,
)
from armarium.retrieval.extractors.pdf_pages import MAX_WIDTH, MIN_WIDTH
from armarium.retrieval.search.follow_ups import MAX_EARLIER

Path = Annotated[str, Field(min_length=1, max_length=4096)]


@dataclass(frozen=True, slots=True)
class CorpusApi:
    """What these tools use."""

    corpus: Corpus
    name: str
    """The name of the directory."""
    reporter: ProgressReporter


class AskAgainArgs(AskArgs):
    """Arguments of corpus_ask."""

    earlier: list[Annotated[str, Field(max_length=20_000)]] = Field(default_factory=list[str], max_length=MAX_EARLIER)
    """The earlier questions of the conversation, oldest first. The question may refer to them."""


class TroublesArgs(Args):
    """Arguments of corpus_troubles."""

    state: TroubleState | None = None
    """Only files in this state."""
    limit: int = Field(default=100, ge=1, le=500)
    cursor: str | None = None
    """Where to continue: `next` of the previous page."""


class ReindexArgs(Args):
    """Arguments of corpus_reindex."""

    path: Path | None = None
    """A file or directory, relative to the indexed directory. Default: everything."""


class PageArgs(Args):
    """Arguments of corpus_page."""

    rel_path: Path
    """A PDF, also one in an archive."""
    page: int = Field(default=1, ge=1, le=1_000_000)
    """The page, counted from 1."""
    width: int = Field(default=1000, ge=MIN_WIDTH, le=MAX_WIDTH)
    """The width of the picture in pixels. A page that is very high is drawn narrower."""


class PageBoxesArgs(Args):
    """Arguments of corpus_page_boxes."""

    rel_path: Path
    """A PDF, also one in an archive."""
    page: int | None = Field(default=None, ge=1, le=1_000_000)
    """The page, counted from 1. Default: that of the chunk."""
    chunk_id: int | None = Field(default=None, ge=0)
    """The quote: a chunk of a hit or a citation."""
    text: str | None = Field(default=None, min_length=1, max_length=2000)
    """The quote as a text, if it is not a chunk."""


class PagePictureFile(TypedDict):
    name: str
    b64: str
    """The picture as PNG."""
    pages: int
    width: int
    height: int


class PageBox(TypedDict):
    left: float
    top: float
    width: float
    height: float


class PageBoxes(TypedDict):
    rel_path: str
    page: int
    pages: int
    """The number of pages of the document."""
    width_points: float
    height_points: float
    found: float
    """The share of the quote that is on the page, from 0 to 1."""
    boxes: list[PageBox]
    """One for each line of the quote, as shares of the width and height of the page from its upper left corner."""


class CorpusStatus(TypedDict):
    name: str
    """The name of the indexed directory."""
    indexing_complete: bool
    indexing: ProgressReport
    models: dict[str, str]
    generates_answers: bool
    """Whether a chat model writes the answers. Otherwise they consist of sentences found."""
    warnings: list[str]


class TroubleFile(TypedDict):
    rel_path: str
    doc_type: str
    size_bytes: int
    state: TroubleState
    code: str
    message: str
    hint: NotRequired[str]


class Troubles(TypedDict):
    files: list[TroubleFile]
    """Failed files first, then skipped ones, each by path."""
    counts: dict[TroubleState, int]
    """How many there are. 1000 stands for 1000 or more."""
    next: NotRequired[str]
    """The `cursor` of the next page; missing on the last one."""


class Queued(TypedDict):
    status: Literal["queued"]
    path: NotRequired[str]


async def corpus_ask(api: CorpusApi, call: Call, args: AskAgainArgs) -> Json:
    """Answer a question from the indexed directory, with citations. A question that refers to earlier ones is made
    searchable by a chat model, or together with the one it refers to; `searched_for` tells how. As a stream, the hits
    come first, then the text as it is written, then the citations."""
    corpus = api.corpus
    # Before the first part, so that the refusal has a status of its own.
    require_searchable(args.question)

    def on_results(searched_for: str, results: SearchResults) -> None:
        hits: Json = {
            "hits": _hits_with_origin(results),
            "index_used": results.index_used,
            "searched_for": searched_for,
            "indexing_complete": corpus.indexing_complete,
        }
        call.emit("hits", hits | _lexical_only(results))
        if args.mode == "answer":
            call.emit("progress", {"phase": "answering"})

    call.emit("progress", {"phase": "searching"})
    listener = AskListener(lambda text: call.emit("text", {"text": text}), on_results)
    filters = filters_of(args)
    asked = await corpus.ask(args.question, args.k, args.mode, args.index, filters, listener, earlier=args.earlier)
    if asked.answer is not None:
        call.emit("citations", {"citations": citations_as_json(asked.answer.cited)})
    body = ask_as_json(args.question, asked, indexing_complete=corpus.indexing_complete)
    body |= {"hits": _hits_with_origin(asked.results), "searched_for": asked.searched_for}
    body |= _lexical_only(asked.results)
    if asked.answer is not None and asked.answer.model is not None:
        body["model"] = asked.answer.model
    return body


def _hits_with_origin(results: SearchResults) -> list[Json]:
    """The hits, also with the search that found each. The schema of the MCP tools has no field for it."""
    shown = zip(hits_as_json(results), results.hits, strict=True)
    return [described | {"found_by": hit.found_by} for described, hit in shown]


def _lexical_only(results: SearchResults) -> Json:
    return {} if results.lexical_only is None else {"lexical_only": results.lexical_only}


async def corpus_status(api: CorpusApi, call: Call, args: NoArgs) -> CorpusStatus:
    """Report the progress of indexing, lexical search and vectors apart, with rates and the time left, and the models
    in use."""
    corpus = api.corpus
    resources = corpus.resources
    return {
        "name": api.name,
        "indexing_complete": corpus.indexing_complete,
        "indexing": api.reporter.report(corpus.progress.now),
        "models": dict(resources.model_names),
        "generates_answers": resources.models.chat is not None and resources.settings.rag.generate_answer,
        "warnings": corpus.warnings,
    }


async def corpus_troubles(api: CorpusApi, call: Call, args: TroublesArgs) -> Troubles:
    """List the files that could not be indexed, and why: failed ones, and those that were skipped on purpose."""
    page = await api.corpus.troubles(args.state, args.limit, args.cursor)
    files: list[TroubleFile] = []
    for state, (rel_path, doc_type, size_bytes, error) in page.rows:
        code, message = code_and_message(error)
        file = TroubleFile(
            rel_path=rel_path, doc_type=doc_type, size_bytes=size_bytes, state=state, code=code, message=message
        )
        if (hint := hint_for(code)) is not None:
            file["hint"] = hint
        files.append(file)
    answer: Troubles = {"files": files, "counts": page.counts}
    if page.next is not None:
        answer["next"] = page.next
    return answer


async def corpus_reindex(api: CorpusApi, call: Call, args: ReindexArgs) -> Queued:
    """Index a file, a directory or everything again, although nothing changed. It happens in the background; the event
    `index_progress` tells how far it is."""
    await api.corpus.index_again(args.path)
    return {"status": "queued"} if args.path is None else {"status": "queued", "path": args.path}


async def corpus_page(api: CorpusApi, call: Call, args: PageArgs) -> PagePictureFile:
    """Draw a page of a PDF as an image."""
    picture = await api.corpus.pages.picture(args.rel_path, args.page, args.width)
    encoded = base64.b64encode(picture.png).decode()
    size = picture.width, picture.height
    return {"name": "page.png", "b64": encoded, "pages": picture.pages, "width": size[0], "height": size[1]}


async def corpus_page_boxes(api: CorpusApi, call: Call, args: PageBoxesArgs) -> PageBoxes:
    """Find the rectangles of a quote on a page of a PDF: a chunk, or a text."""
    page, placed = await api.corpus.pages.place(args.rel_path, args.page, args.chunk_id, args.text)
    return {
        "rel_path": args.rel_path,
        "page": page,
        "pages": placed.pages,
        "width_points": placed.width_points,
        "height_points": placed.height_points,
        "found": round(placed.found, 4),
        "boxes": [
            {"left": left, "top": top, "width": right - left, "height": bottom - top}
            for left, top, right, bottom in placed.boxes
        ],
    }


_ERRORS: Final = replace(ERROR_ENVELOPE, translate=contract_error)
_READS: Final[dict[str, Any]] = {"read_only": True, "idempotent": True, "errors": _ERRORS}
_HIT: Final[Json] = {
    **HIT,
    "properties": {**HIT["properties"], "found_by": {"enum": ["lexical", "semantic", "both"]}},
    "required": [*HIT["required"], "found_by"],
}
_ASK_SCHEMA: Final[Json] = {
    **OUTPUT["ask"],
    "definitions": {**OUTPUT["ask"]["definitions"], "Hit": _HIT},
    "properties": {
        **OUTPUT["ask"]["properties"],
        "searched_for": {"type": "string"},
        "model": {"type": "string", "description": "The chat model that wrote the answer."},
        "lexical_only": {"type": "string", "description": "Why the search was lexical only."},
    },
    "required": [*OUTPUT["ask"]["required"], "searched_for"],
}

ROUTE_TOOLS: Final[tuple[DeclaredTool[CorpusApi], ...]] = (
    declare_tool(
        "corpus_ask",
        corpus_ask,
        title="Ask the directory",
        output_schema=_ASK_SCHEMA,
        question_argument="question",
        is_search=True,
        content_fields=frozenset({"question", "earlier"}),
        subject=("", ""),
        **_READS,
    ),
    declare_tool(
        "corpus_page",
        corpus_page,
        title="Picture of a page",
        text=no_text,
        subject=("", "rel_path"),
        **_READS,
    ),
    declare_tool(
        "corpus_page_boxes",
        corpus_page_boxes,
        title="Place of a quote on a page",
        content_fields=frozenset({"text"}),
        subject=("", "rel_path"),
        **_READS,
    ),
    declare_tool("corpus_status", corpus_status, title="Status of the index", subject=("", ""), **_READS),
    declare_tool("corpus_troubles", corpus_troubles, title="Files that are not indexed", subject=("", ""), **_READS),
    declare_tool(
        "corpus_reindex",
        corpus_reindex,
        title="Index again",
        role=ADMINISTER,
        idempotent=True,
        errors=_ERRORS,
        subject=("", "path"),
    ),
)
"""Only routes offer them."""

ROUTES: Final = (
    declare_route("GET", "/search", "dir2mcp.search", "Search the directory"),
    declare_route("POST", "/ask", "corpus_ask", "Ask the directory", streams=True),
    declare_route("GET", "/file", "dir2mcp.open_file", "Open a slice of a file"),
    declare_route("GET", "/files", "dir2mcp.list_files", "List the documents"),
    declare_route("GET", "/page", "corpus_page", "Draw a page of a PDF", is_file=True, media_type="image/png"),
    declare_route("GET", "/page-boxes", "corpus_page_boxes", "Find a quote on a page of a PDF"),
    declare_route("GET", "/stats", "corpus_status", "Show the progress of indexing"),
    declare_route("GET", "/troubles", "corpus_troubles", "List the files that are not indexed"),
    declare_route("POST", "/reindex", "corpus_reindex", "Index a file or everything again", success=202),
)
"""The JSON API."""
