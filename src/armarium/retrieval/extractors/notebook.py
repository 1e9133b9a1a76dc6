"""Extracts Jupyter notebooks as Markdown: prose, fenced code, and the start of each output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from armarium.retrieval.chunks import ExtractedText
from armarium.retrieval.encodings import clean, decode
from armarium.retrieval.errors import ExtractFailed

_MAX_OUTPUT_LINES = 20
_MAX_OUTPUT_CHARS = 2_000


def extract_notebook(data: bytes) -> ExtractedText:
    try:
        parsed: object = json.loads(decode(data))
    except (ValueError, RecursionError) as error:
        raise ExtractFailed("the notebook is not JSON") from error
    if not isinstance(parsed, dict):
        raise ExtractFailed("the notebook is not a JSON object")
    notebook = cast("dict[str, Any]", parsed)
    metadata = _mapping(notebook.get("metadata"))
    named = _mapping(metadata.get("language_info")).get("name") or _mapping(metadata.get("kernelspec")).get("language")
    language = named if isinstance(named, str) and named.isalnum() else ""
    parts = (notebook, *_mappings(notebook.get("worksheets")))  # worksheets: formats before version 4
    cells = (cell for part in parts for cell in _mappings(part.get("cells")))
    blocks = [block for cell in cells for block in _blocks(cell, language)]
    return ExtractedText(clean("\n\n".join(blocks) + "\n" if blocks else ""), structure="markdown")


def _mapping(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _mappings(value: object) -> list[dict[str, Any]]:
    return [_mapping(item) for item in cast("list[object]", value)] if isinstance(value, list) else []


def _text(value: object) -> str:
    """A multi-line string of the format: a string or a list of lines."""
    if isinstance(value, list):
        return "".join(line for line in cast("list[object]", value) if isinstance(line, str))
    return value if isinstance(value, str) else ""


def _blocks(cell: dict[str, Any], language: str) -> Iterator[str]:
    source = (_text(cell.get("source")) or _text(cell.get("input"))).strip("\n")
    if cell.get("cell_type") != "code":
        level = cell.get("level")
        is_heading = cell.get("cell_type") == "heading" and isinstance(level, int) and 1 <= level <= 6
        yield from [f"{'#' * cast(int, level)} {source}" if is_heading else source] if source.strip() else []
        return
    if source.strip():
        yield _fenced(source, language)
    if printed := "\n".join(filter(None, map(_printed, _mappings(cell.get("outputs"))))):
        lines = printed[:_MAX_OUTPUT_CHARS].split("\n")
        yield _fenced("\n".join(lines[:_MAX_OUTPUT_LINES]), "")


def _printed(output: dict[str, Any]) -> str:
    if output.get("output_type") in {"error", "pyerr"}:
        return f"{_text(output.get('ename'))}: {_text(output.get('evalue'))}"
    plain = _mapping(output.get("data")).get("text/plain")
    return (_text(output.get("text")) or _text(plain)).strip("\n")


def _fenced(code: str, language: str) -> str:
    fence = "```"
    while fence in code:
        fence += "`"
    return f"{fence}{language}\n{code}\n{fence}"
