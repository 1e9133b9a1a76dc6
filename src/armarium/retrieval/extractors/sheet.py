"""Extracts Excel workbooks: each sheet under a heading, each row a line of its cells."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator
from datetime import datetime, time
from typing import Any

from armarium.retrieval.chunks import Extracted
from armarium.retrieval.encodings import clean
from armarium.retrieval.extractors.errors import ExtractFailed
from armarium.retrieval.extractors.limits import Limits
from armarium.retrieval.extractors.package import Package


def extract_sheet(data: bytes, limits: Limits) -> Extracted:
    """The values of the cells, as the workbook last computed them."""
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise ExtractFailed(
            "Excel workbooks need the office packages", hint="pip install 'armarium[office]'"
        ) from error
    package = Package(data, limits)
    package.check_every_part()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells what it will not keep when saving, and nothing is saved
        workbook: Any = load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        try:
            text = "\n".join(_lines(workbook.worksheets, limits.max_cells))
        finally:
            workbook.close()
    return Extracted(clean(text), structure="markdown", title=package.title())


def _lines(sheets: Iterable[Any], max_cells: int) -> Iterator[str]:
    left = max_cells
    for sheet in sheets:
        # A declared size may be a lie: a row padded to 16,384 columns, for each of a million rows.
        sheet.reset_dimensions()
        yield f"## {' '.join(str(sheet.title).split())}\n"
        for row in sheet.iter_rows(values_only=True):
            left -= len(row) or 1
            if left < 0:
                yield "(the rows from here on were left out)"
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
