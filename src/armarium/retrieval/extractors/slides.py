"""Extracts PowerPoint presentations as Markdown, one page per slide, with speaker notes."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from armarium.retrieval.chunks import ExtractedText, ExtractLimits, join_pages
from armarium.retrieval.encodings import clean
from armarium.retrieval.errors import ExtractFailed
from armarium.retrieval.extractors.package import Package

_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_TITLES = frozenset({"title", "ctrTitle"})
_PAGE_ELEMENTS = frozenset({"sldNum", "dt", "ftr", "hdr"})


def extract_slides(data: bytes, limits: ExtractLimits) -> ExtractedText:
    """The slides in presentation order."""
    package = Package(data, limits)
    main = package.main_part()
    related = package.related(main)
    order = [slide.get(f"{_R}id", "") for slide in package.xml(main).iter(f"{_P}sldId")]
    parts = [related[slide][1] for slide in order if slide in related][: limits.max_pages]
    if not parts:
        raise ExtractFailed("the presentation has no slides")
    text, page_starts = join_pages([clean(_slide(package, part)) for part in parts])
    return ExtractedText(text, structure="markdown", title=package.title(), page_starts=page_starts)


def _slide(package: Package, part: str) -> str:
    titles: list[str] = []
    body: list[str] = []
    for kind, lines in _shapes(package.xml(part)):
        if kind in _TITLES:
            titles.append("# " + " ".join(" ".join(lines).split()))
        else:
            body.append("\n".join(lines))
    if notes_part := package.related_part(part, "notesSlide"):
        notes = [line for kind, lines in _shapes(package.xml(notes_part)) if kind == "body" for line in lines]
        body += ["Notes:\n" + "\n".join(notes)] if notes else []
    return "\n\n".join([*titles, *body])


def _shapes(slide: Element) -> Iterator[tuple[str, list[str]]]:
    """The placeholder type and the lines of each text shape and table."""
    for element in slide.iter():
        if element.tag == f"{_P}sp":
            placeholder = element.find(f"{_P}nvSpPr/{_P}nvPr/{_P}ph")
            kind = "" if placeholder is None else placeholder.get("type", "body")
            lines = [line for paragraph in element.iter(f"{_A}p") if (line := _line(paragraph, kind))]
            if lines and kind not in _PAGE_ELEMENTS:
                yield kind, lines
        elif element.tag == f"{_A}tbl":
            rows = [_row(row) for row in element.iter(f"{_A}tr")]
            if any(rows):
                yield "table", rows


def _line(paragraph: Element, kind: str) -> str:
    text = "".join(_characters(paragraph)).strip()
    level = paragraph.find(f"{_A}pPr") if text and kind not in _TITLES else None
    depth = level.get("lvl", "0") if level is not None else "0"
    return f"{'  ' * min(int(depth), 8)}- {text}" if depth.isdecimal() and int(depth) else text


def _characters(paragraph: Element) -> Iterator[str]:
    for element in paragraph.iter():
        if element.tag == f"{_A}t":
            yield element.text or ""
        elif element.tag == f"{_A}br":
            yield " "


def _row(row: Element) -> str:
    cells = (" ".join("".join(_characters(cell)).split()) for cell in row.iter(f"{_A}tc"))
    return " | ".join(cells).strip(" |")
