"""The corpus's tools: arguments in, one service call, answer out. The docstrings are what a model reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from armarium.capabilities.corpus import schemas
from armarium.capabilities.corpus.errors import InvalidField, InvalidRange, MissingField
from armarium.capabilities.corpus.query.search import Filters, Results
from armarium.capabilities.corpus.query.slices import Slice
from armarium.capabilities.corpus.service import Asked, Corpus
from armarium.foundation.errors import ArgumentOutOfRange, ArmariumError, InvalidArgument, MissingArgument
from armarium.foundation.schema import Json
from armarium.foundation.tools import Args, Call, ErrorStyle, ToolSpec, local_tool, message_and_hint
from armarium.retrieval.spans import citation, span_as_json, span_from_json

AsText = Callable[[Json], list[str]]


class FilterArgs(Args):
    """Which documents are looked at."""

    path_prefix: str | None = None
    file_glob: str | None = None
    doc_types: list[str] | None = None

    def filters(self) -> Filters:
        """The filters as the service takes them."""
        return Filters(self.path_prefix, self.file_glob, tuple(self.doc_types or ()))


class SearchArgs(FilterArgs):
    """What to search for."""

    query: str
    k: int | None = None
    index: Literal["auto", "text", "code", "both"] = "auto"


class AskArgs(FilterArgs):
    """What to answer."""

    question: str
    k: int | None = None
    mode: Literal["answer", "search_only"] = "answer"
    index: Literal["auto", "text", "code", "both"] = "auto"


class OpenFileArgs(Args):
    """Which slice of which document."""

    rel_path: str
    start_line: int | None = None
    end_line: int | None = None
    page: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    max_chars: int = 20_000
    chunk_id: int | None = None


class ListFilesArgs(Args):
    """Which documents to list."""

    path_prefix: str = ""
    glob: str | None = None
    limit: int = 200
    offset: int = 0


class StatsArgs(Args):
    """Nothing to say."""


def corpus_tools(corpus: Corpus) -> list[ToolSpec]:
    """The five tools over one corpus."""

    async def search(call: Call, args: SearchArgs) -> Json:
        """Find passages in the indexed directory by meaning and by words, best first, each with the path and the
        lines or page it stands at. Use it before open_file when you do not know where something is. `index` auto
        searches prose and source code; text or code searches one of them. Narrow it with `path_prefix`, `file_glob`
        (`src/**/*.py`) or `doc_types` (code, md, text, pdf, html, data …). A query has at most 20,000 characters.
        Results may grow while `indexing_complete` is false."""
        results = await corpus.search(args.query, args.k, args.index, args.filters())
        return search_as_json(args.query, results, indexing_complete=corpus.indexing_complete)

    async def ask(call: Call, args: AskArgs) -> Json:
        """Answer a question from the indexed directory, with citations such as [src/app.py:L10-L42]. Check a citation
        with open_file. `mode` search_only returns the passages without an answer. Takes the same filters as
        search."""
        asked = await corpus.ask(args.question, args.k, args.mode, args.index, args.filters())
        return ask_as_json(args.question, asked, indexing_complete=corpus.indexing_complete)

    async def open_file(call: Call, args: OpenFileArgs) -> Json:
        """Read an exact slice of a document to verify a citation: lines (`start_line`, `end_line`), a `page` of a PDF
        or presentation, or the beginning when neither is given. `chunk_id` of a hit or a citation opens that passage:
        give it where a line is longer than `max_chars`. Files that are excluded or hold credentials are refused."""
        wanted = Slice(args.start_line, args.end_line, args.page, args.start_ms, args.end_ms, args.chunk_id)
        opened = await corpus.open_file(args.rel_path, wanted, args.max_chars)
        answer: Json = {
            "rel_path": opened.rel_path,
            "doc_type": opened.doc_type,
            "content": opened.content,
            "truncated": opened.truncated,
        }
        return answer | ({"span": span_as_json(opened.span)} if opened.span else {})

    async def list_files(call: Call, args: ListFilesArgs) -> Json:
        """List the documents of the indexed directory, in the order of their paths, with type, size and whether they
        could be indexed. Use it to find your way, and to choose filters for search. Page with `limit` and
        `offset`."""
        total, files = await corpus.list_files(args.path_prefix, args.glob, args.limit, args.offset)
        listed = [{name: getattr(file, name) for name in file.__dataclass_fields__} for file in files]
        return {"limit": args.limit, "offset": args.offset, "total": total, "files": listed}

    async def stats(call: Call, args: StatsArgs) -> Json:
        """Tell how far indexing is, how much is indexed, and which models are used."""
        return corpus.stats()

    def tool(
        function: Callable[[Call, Any], Awaitable[Json]], title: str, text: Callable[[Json], list[str]]
    ) -> ToolSpec:
        name = function.__name__
        return local_tool(
            f"dir2mcp.{name}",
            function,
            title=title,
            input_schema=schemas.INPUT[name],
            output_schema=schemas.OUTPUT[name],
            text=text,
            read_only=True,
            idempotent=True,
            is_search=name in ("search", "ask"),
            errors=CORPUS_ERRORS,
            # What people ask is theirs: the log and the audit trail have its length and hash.
            content_fields=frozenset({"query", "question"}),
            subject=("", "rel_path"),
        )

    return [
        tool(search, "Search the directory", _search_text),
        tool(ask, "Ask the directory", _ask_text),
        tool(open_file, "Open a slice of a file", _open_file_text),
        tool(list_files, "List the indexed files", _list_files_text),
        # The contract's schema has no place for warnings, so they are in the text alone.
        tool(stats, "Index status", lambda answer: _stats_text(answer, corpus.warnings)),
    ]


def search_as_json(query: str, results: Results, *, indexing_complete: bool) -> Json:
    """Results in the contract's shape."""
    return {
        "query": query,
        "k": results.k,
        "index_used": results.index_used,
        "hits": _hits(results),
        "indexing_complete": indexing_complete,
    }


def ask_as_json(question: str, asked: Asked, *, indexing_complete: bool) -> Json:
    """An answer in the contract's shape."""
    cited = asked.answer.cited if asked.answer else ()
    body: Json = {
        "question": question,
        "citations": [
            {"chunk_id": chunk.chunk_id, "rel_path": chunk.rel_path, "span": span_as_json(chunk.span)}
            for chunk in cited
        ],
        "hits": _hits(asked.results),
        "indexing_complete": indexing_complete,
    }
    return body | ({"answer": asked.answer.text} if asked.answer else {})


def _hits(results: Results) -> list[Json]:
    return [
        {
            "chunk_id": hit.chunk.chunk_id,
            "rel_path": hit.chunk.rel_path,
            "doc_type": hit.chunk.doc_type,
            "rep_type": hit.chunk.rep_type,
            "score": round(hit.score, 6),
            "snippet": hit.snippet,
            "span": span_as_json(hit.chunk.span),
        }
        for hit in results.hits
    ]


def _search_text(answer: Json) -> list[str]:
    if not answer["hits"]:
        return [f"Nothing found for: {answer['query']}{_partial(answer)}"]
    count = "1 hit" if len(answer["hits"]) == 1 else f"{len(answer['hits'])} hits"
    lines = [f"{count} for: {answer['query']} (index: {answer['index_used']}){_partial(answer)}"]
    return ["\n\n".join([*lines, *_hit_texts(answer)])]


def _ask_text(answer: Json) -> list[str]:
    if "answer" in answer:
        return [answer["answer"] + _partial(answer)]
    return ["\n\n".join(_hit_texts(answer)) or f"Nothing found for: {answer['question']}{_partial(answer)}"]


def _hit_texts(answer: Json) -> list[str]:
    return [
        f"{number}. {citation(hit['rel_path'], span_from_json(hit['span']))}\n{hit['snippet']}"
        for number, hit in enumerate(answer["hits"], 1)
    ]


def _partial(answer: Json) -> str:
    return "" if answer["indexing_complete"] else " (indexing is still under way; more may come)"


def _open_file_text(answer: Json) -> list[str]:
    where = citation(answer["rel_path"], span_from_json(answer["span"])) if "span" in answer else answer["rel_path"]
    more = "\n(truncated; `chunk_id` of a hit shows its own part)" if answer["truncated"] else ""
    return [f"{where}\n{answer['content']}{more}"]


def _list_files_text(answer: Json) -> list[str]:
    lines = [
        f"{file['rel_path']} ({file['doc_type']}, {file['size_bytes']} bytes"
        + ("" if file["status"] == "ok" else f", {file['status']}")
        + ")"
        for file in answer["files"]
    ]
    shown = f"{len(lines)} of {answer['total']} files"
    return ["\n".join([shown, *lines])]


def _stats_text(answer: Json, warnings: Sequence[str]) -> list[str]:
    indexing, models = answer["indexing"], answer["models"]
    state = "indexing" if indexing["running"] else "complete"
    return [
        f"{answer['root']}: {state}. {indexing['scanned']} files scanned, {indexing['indexed']} indexed, "
        f"{indexing['chunks_total']} passages, {indexing['embedded_ok']} embedded, {indexing['errors']} errors. "
        f"Embeddings: {models['embed_text']} (text), {models['embed_code']} (code). Answers: {models['chat']}."
        + "".join(f"\nWarning: {warning}" for warning in warnings)
    ]


def _contract_error(error: ArmariumError) -> ArmariumError:
    """What the server found wrong with arguments, under the names this contract has for it."""
    match error:
        case MissingArgument():
            return MissingField(error.message, hint=error.hint)
        case ArgumentOutOfRange():
            return InvalidRange(error.message, hint=error.hint)
        case InvalidArgument():
            return InvalidField(error.message, hint=error.hint)
        case _:
            return error


CORPUS_ERRORS = ErrorStyle(
    lambda error: {"error": {"code": error.code, "message": error.message, "retryable": error.retryable}},
    {
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "properties": {
                    "code": {"type": "string"},
                    "message": {"type": "string"},
                    "retryable": {"type": "boolean"},
                },
                "required": ["code", "message", "retryable"],
            }
        },
        "required": ["error"],
    },
    text=lambda error: f"ERROR: {error.code}: {message_and_hint(error)}",
    translate=_contract_error,
    in_output_schema=False,
)
