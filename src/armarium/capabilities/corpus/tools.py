"""The MCP tools of the corpus: arguments, result shapes and their text form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from armarium.capabilities.corpus.errors import InvalidField, InvalidRange, MissingField
from armarium.capabilities.corpus.query.search import Filters, SearchResults
from armarium.capabilities.corpus.query.slices import Slice
from armarium.capabilities.corpus.schemas import OUTPUT
from armarium.capabilities.corpus.service import AnswerMode, AskResult, Corpus
from armarium.capabilities.corpus.storage.chunks import StoredChunk
from armarium.foundation.errors import ArgumentOutOfRange, ArmariumError, InvalidArgument, MissingArgument
from armarium.foundation.schema import Json
from armarium.foundation.security.access import Access
from armarium.foundation.tools import (
    ERROR_ENVELOPE,
    Args,
    Call,
    DeclaredTool,
    ErrorStyle,
    NoArgs,
    ToolSpec,
    bind_tools,
    declare_tool,
    message_and_hint,
)
from armarium.retrieval.search.index_choice import IndexChoice
from armarium.retrieval.spans import citation, span_as_json, span_from_json

Text = Annotated[str, Field(min_length=1)]
HitCount = Annotated[int | None, Field(ge=1, le=50, json_schema_extra={"default": 10})]
"""The schema has the contract's default. The settings have the one that counts."""
Ordinal = Annotated[int | None, Field(ge=1)]
Offset = Annotated[int | None, Field(ge=0)]


class SearchArgs(Args):
    query: Text
    k: HitCount = None
    index: IndexChoice = "auto"
    path_prefix: str | None = None
    file_glob: str | None = None
    doc_types: list[str] | None = None


class AskArgs(Args):
    question: Text
    k: HitCount = None
    mode: AnswerMode = "answer"
    index: IndexChoice = "auto"
    path_prefix: str | None = None
    file_glob: str | None = None
    doc_types: list[str] | None = None


class OpenFileArgs(Args):
    """Arguments of open_file. `chunk_id` is not in the contract: two chunks of one long line have the same span."""

    rel_path: Text
    start_line: Ordinal = None
    end_line: Ordinal = None
    page: Ordinal = None
    start_ms: Offset = None
    end_ms: Offset = None
    max_chars: int = Field(default=20_000, ge=200, le=50_000)
    chunk_id: Offset = None


class ListFilesArgs(Args):
    path_prefix: str | None = None
    glob: str | None = None
    limit: int = Field(default=200, ge=1, le=5000)
    offset: int = Field(default=0, ge=0)


async def search(corpus: Corpus, call: Call, args: SearchArgs) -> Json:
    """Find chunks of the documents in the indexed directory, by meaning and by words, best first, each with its path
    and its lines or page. Use it before open_file when you do not know where something is. `index` auto searches prose
    and source code; text or code searches one of them. Narrow it with `path_prefix`, `file_glob` (`src/**/*.py`) or
    `doc_types` (code, md, text, pdf, html, data …). A query has at most 20,000 characters. Results may grow while
    `indexing_complete` is false."""
    results = await corpus.search(args.query, args.k, args.index, filters_of(args))
    return {
        "query": args.query,
        "k": results.k,
        "index_used": results.index_used,
        "hits": hits_as_json(results),
        "indexing_complete": corpus.indexing_complete,
    }


async def ask(corpus: Corpus, call: Call, args: AskArgs) -> Json:
    """Answer a question from the indexed directory, with citations such as [src/app.py:L10-L42]. Check a citation
    with open_file. `mode` search_only returns the chunks without an answer. Takes the same filters as search."""
    result = await corpus.ask(args.question, args.k, args.mode, args.index, filters_of(args))
    return ask_as_json(args.question, result, indexing_complete=corpus.indexing_complete)


async def open_file(corpus: Corpus, call: Call, args: OpenFileArgs) -> Json:
    """Read an exact slice of a document to verify a citation: lines (`start_line`, `end_line`), a `page` of a PDF
    or presentation, or the beginning when neither is given. `chunk_id` of a hit or a citation opens that chunk:
    give it where a line is longer than `max_chars`. Files that are excluded or hold credentials are refused."""
    wanted = Slice(args.start_line, args.end_line, args.page, args.start_ms, args.end_ms, args.chunk_id)
    opened = await corpus.open_file(args.rel_path, wanted, args.max_chars)
    result: Json = {
        "rel_path": opened.rel_path,
        "doc_type": opened.doc_type,
        "content": opened.content,
        "truncated": opened.truncated,
    }
    return result | ({"span": span_as_json(opened.span)} if opened.span else {})


async def list_files(corpus: Corpus, call: Call, args: ListFilesArgs) -> Json:
    """List the documents of the indexed directory in path order, with type, size and indexing status. Use it to get an
    overview, and to choose filters for search. Page with `limit` and `offset`."""
    total, files = await corpus.list_files(args.path_prefix or "", args.glob, args.limit, args.offset)
    return {"limit": args.limit, "offset": args.offset, "total": total, "files": files}


async def stats(corpus: Corpus, call: Call, args: NoArgs) -> Json:
    """Report indexing progress, the size of the index and the models in use."""
    return corpus.stats()


def filters_of(args: SearchArgs | AskArgs) -> Filters:
    return Filters(args.path_prefix, args.file_glob, tuple(args.doc_types or ()))


def ask_as_json(question: str, asked: AskResult, *, indexing_complete: bool) -> Json:
    """An answer in the shape of the contract."""
    cited = asked.answer.cited if asked.answer else ()
    body: Json = {
        "question": question,
        "citations": citations_as_json(cited),
        "hits": hits_as_json(asked.results),
        "indexing_complete": indexing_complete,
    }
    return body | ({"answer": asked.answer.text} if asked.answer else {})


def citations_as_json(cited: Sequence[StoredChunk]) -> list[Json]:
    """The cited chunks in the shape of the contract."""
    return [
        {"chunk_id": chunk.chunk_id, "rel_path": chunk.rel_path, "span": span_as_json(chunk.span)} for chunk in cited
    ]


def hits_as_json(results: SearchResults) -> list[Json]:
    """The hits in the shape of the contract."""
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


def _search_text(result: Json) -> list[str]:
    if not result["hits"]:
        return [f"Nothing found for: {result['query']}{_partial(result)}"]
    count = "1 hit" if len(result["hits"]) == 1 else f"{len(result['hits'])} hits"
    lines = [f"{count} for: {result['query']} (index: {result['index_used']}){_partial(result)}"]
    return ["\n\n".join([*lines, *_hit_texts(result)])]


def _ask_text(result: Json) -> list[str]:
    if "answer" in result:
        return [result["answer"] + _partial(result)]
    return ["\n\n".join(_hit_texts(result)) or f"Nothing found for: {result['question']}{_partial(result)}"]


def _hit_texts(result: Json) -> list[str]:
    return [
        f"{number}. {citation(hit['rel_path'], span_from_json(hit['span']))}\n{hit['snippet']}"
        for number, hit in enumerate(result["hits"], 1)
    ]


def _partial(result: Json) -> str:
    return "" if result["indexing_complete"] else " (indexing is still under way; more may come)"


def _open_file_text(result: Json) -> list[str]:
    where = citation(result["rel_path"], span_from_json(result["span"])) if "span" in result else result["rel_path"]
    more = "\n(truncated; `chunk_id` of a hit shows its own part)" if result["truncated"] else ""
    return [f"{where}\n{result['content']}{more}"]


def _list_files_text(result: Json) -> list[str]:
    lines = [f"{len(result['files'])} of {result['total']} files"]
    for file in result["files"]:
        status = "" if file["status"] == "ok" else f", {file['status']}"
        lines.append(f"{file['rel_path']} ({file['doc_type']}, {file['size_bytes']} bytes{status})")
    return ["\n".join(lines)]


def _stats_text(result: Json) -> list[str]:
    indexing, models = result["indexing"], result["models"]
    state = "indexing" if indexing["running"] else "complete"
    return [
        f"{result['root']}: {state}. {indexing['scanned']} files scanned, {indexing['indexed']} indexed, "
        f"{indexing['chunks_total']} chunks, {indexing['embedded_ok']} embedded, {indexing['errors']} errors. "
        f"Embeddings: {models['embed_text']} (text), {models['embed_code']} (code). Answers: {models['chat']}."
    ]


_CONTRACT_ERRORS = {MissingArgument: MissingField, ArgumentOutOfRange: InvalidRange, InvalidArgument: InvalidField}
"""The contract's error for each shared one. The base class comes last."""


def contract_error(error: ArmariumError) -> ArmariumError:
    """The contract's error for an invalid argument."""
    for shared, ours in _CONTRACT_ERRORS.items():
        if isinstance(error, shared):
            return ours(error.message, hint=error.hint)
    return error


_ERRORS = ErrorStyle(
    lambda error: {"error": {"code": error.code, "message": error.message, "retryable": error.retryable}},
    ERROR_ENVELOPE.schema,
    text=lambda error: f"ERROR: {error.code}: {message_and_hint(error)}",
    translate=contract_error,
    in_output_schema=False,
)


def _declare(
    function: Callable[[Corpus, Call, Any], Awaitable[Json]],
    title: str,
    text: Callable[[Json], list[str]],
    **more: Any,
) -> DeclaredTool[Corpus]:
    name = function.__name__
    return declare_tool(
        f"dir2mcp.{name}",
        function,
        title=title,
        output_schema=OUTPUT[name],
        text=text,
        read_only=True,
        idempotent=True,
        is_search=name in ("search", "ask"),
        errors=_ERRORS,
        # Questions are private: the log and the audit trail record only their length and hash.
        content_fields=frozenset({"query", "question"}),
        subject=("", "rel_path"),
        **more,
    )


# The generated schema would have empty `properties`, which the contract has not.
_STATS = _declare(stats, "Index status", _stats_text, input_schema={"type": "object", "additionalProperties": False})

TOOLS: tuple[DeclaredTool[Corpus], ...] = (
    _declare(search, "Search the directory", _search_text),
    _declare(ask, "Ask the directory", _ask_text),
    _declare(open_file, "Open a slice of a file", _open_file_text),
    _declare(list_files, "List the indexed files", _list_files_text),
    _STATS,
)


def bind_corpus_tools(corpus: Corpus, access: Access | None = None) -> list[ToolSpec]:
    """The tools, run by one corpus, which checks `access` again. The contract's result of `stats` has no field for
    warnings, so they are part of its text only."""

    def stats_text(result: Json) -> list[str]:
        (text,) = _stats_text(result)
        return [text + "".join(f"\nWarning: {warning}" for warning in corpus.warnings)]

    bound = bind_tools(TOOLS, corpus, access)
    return [replace(tool, text=stats_text) if tool.name == _STATS.spec.name else tool for tool in bound]
