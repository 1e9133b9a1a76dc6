"""Extracts Excel workbooks: one heading per sheet, one line per row."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import datetime, time
from typing import Any

from armarium.retrieval.chunks import ExtractedText, ExtractLimits
from armarium.retrieval.encodings import clean
from armarium.retrieval.errors import ExtractFailed
from armarium.retrieval.extractors.package import Package


def extract_sheet(data: bytes, limits: ExtractLimits) -> ExtractedText:
    """The values of the cells as last computed by the application."""
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise ExtractFailed(
            "Excel workbooks need the office packages", hint="pip install 'armarium[office]'"
        ) from error
    package = Package(data, limits)
    package.check_every_part()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about features lost when saving
        with closing(load_workbook(io.BytesIO(data), read_only=True, data_only=True)) as workbook:
            text = "\n".join(_lines(workbook.worksheets, limits.max_cells))
    return ExtractedText(clean(text), structure="markdown", title=package.title())


def _lines(sheets: Iterable[Any], max_cells: int) -> Iterator[str]:
    left = max_cells
    for sheet in sheets:
        # A hostile file can declare a million rows of 16,384 columns.
        sheet.reset_dimensions()
        yield f"## {' '.join(str(sheet.title).split())}\n"
        for row in sheet.iter_rows(values_only=True):
            left -= len(row) or 1
            if left < 0:
                yield "(the remaining rows were skipped)"
                return
            if line := " | ".join(map(_cell, row)).strip(" |"):
                yield line
        yield ""


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case str():
            return " ".join(value.split())
        case bool():
            return "TRUE" if value else "FALSE"
        case float() if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
        case datetime():
            return value.date().isoformat() if value.time() == time() else value.isoformat(" ")
        case _:
            return str(value)
