"""Extracts Word documents as Markdown: headings, lists, tables and notes, with tracked changes accepted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from armarium.retrieval.chunks import ExtractedText, ExtractLimits
from armarium.retrieval.encodings import clean
from armarium.retrieval.errors import ExtractFailed
from armarium.retrieval.extractors.package import Package

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_PARAGRAPH, _TABLE, _ROW, _CELL = f"{_W}p", f"{_W}tbl", f"{_W}tr", f"{_W}tc"
_CHARACTERS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
_NOT_READ = frozenset({f"{_W}del", f"{_W}moveFrom", f"{_W}pPr", f"{_W}rPr", _FALLBACK})
_HEADING = re.compile(r"heading ([1-9])$", re.IGNORECASE)
_MAX_HEADING, _MAX_DEPTH = 6, 100
# The strict variant of the format has its own namespaces.
_STRICT = "{http://purl.oclc.org/ooxml/wordprocessingml/main}"


def extract_word(data: bytes, limits: ExtractLimits) -> ExtractedText:
    """The document in reading order, followed by its footnotes and endnotes."""
    package = Package(data, limits)
    main = package.main_part()
    document = _transitional(package.xml(main))
    styles = package.related_part(main, "styles")
    headings = _headings(_transitional(package.xml(styles))) if styles else {}
    blocks = list(_blocks(document, headings))
    for kind in ("footnotes", "endnotes"):
        notes = package.related_part(main, kind)
        if notes and (texts := list(_blocks(_transitional(package.xml(notes)), {}))):
            blocks += [f"## {kind.capitalize()}", *texts]
    return ExtractedText(clean(_joined(blocks)), structure="markdown", title=package.title())


def _transitional(root: Element) -> Element:
    if root.tag.startswith(_STRICT):
        for element in root.iter():
            element.tag = element.tag.replace(_STRICT, _W)
    return root


def _headings(styles: Element) -> dict[str, int]:
    """Style id → level, for heading styles, styles based on one, and styles with an outline level."""
    levels: dict[str, int] = {}
    based_on: dict[str, str] = {}
    for style in styles.iter(f"{_W}style"):
        style_id = style.get(f"{_W}styleId", "")
        name = _value(style.find(f"{_W}name"))
        outline = _value(style.find(f"{_W}pPr/{_W}outlineLvl"))
        if named := _HEADING.match(name):
            levels[style_id] = int(named[1])
        elif name.lower() == "title":
            levels[style_id] = 1
        elif outline.isdecimal() and int(outline) < 9:
            levels[style_id] = int(outline) + 1
        elif base := _value(style.find(f"{_W}basedOn")):
            based_on[style_id] = base
    for style_id in based_on:
        ancestor = style_id
        for _ in range(_MAX_DEPTH):  # a style may be based on itself
            if ancestor not in based_on:
                break
            ancestor = based_on[ancestor]
        if ancestor in levels:
            levels[style_id] = levels[ancestor]
    return levels


def _value(element: Element | None) -> str:
    return "" if element is None else element.get(f"{_W}val", "")


def _blocks(parent: Element, headings: dict[str, int], depth: int = 0) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        raise ExtractFailed("the document is nested too deeply")
    for element in parent:
        if element.tag == _PARAGRAPH:
            if text := _paragraph(element, headings):
                yield text
        elif element.tag == _TABLE:
            if rows := [row for row in map(_row, element.iter(_ROW)) if row]:
                yield "\n".join(rows)
        elif element.tag not in _NOT_READ:
            yield from _blocks(element, headings, depth + 1)


def _paragraph(paragraph: Element, headings: dict[str, int]) -> str:
    text = "".join(_characters(paragraph)).strip()
    properties = paragraph.find(f"{_W}pPr")
    if not text or properties is None:
        return text
    style = _value(properties.find(f"{_W}pStyle"))
    if level := headings.get(style):
        return f"{'#' * min(level, _MAX_HEADING)} {' '.join(text.split())}"
    numbering = properties.find(f"{_W}numPr")
    if numbering is not None or style.lower().startswith("list"):
        level = _value(numbering.find(f"{_W}ilvl")) if numbering is not None else ""
        indent = "  " * min(int(level) if level.isdecimal() else 0, 8)
        return f"{indent}- {' '.join(text.split())}"
    return text


def _row(row: Element) -> str:
    cells = (" ".join("".join(_characters(cell)).split()) for cell in row.iter(_CELL))
    return " | ".join(cells).strip(" |")


def _characters(element: Element) -> Iterator[str]:
    """The text of an element, without recursion: documents may be nested to any depth."""
    open_elements = [iter(element)]
    while open_elements:
        child = next(open_elements[-1], None)
        if child is None:
            open_elements.pop()
        elif child.tag == f"{_W}t":
            yield child.text or ""
        elif child.tag in _CHARACTERS:
            yield _CHARACTERS[child.tag]
        elif child.tag not in _NOT_READ:
            if child.tag == _PARAGRAPH:
                yield "\n"
            open_elements.append(iter(child))


def _joined(blocks: list[str]) -> str:
    """Blocks separated by empty lines, except for list items."""
    pieces: list[str] = []
    for before, block in zip(["", *blocks], blocks, strict=False):
        if pieces:
            both_items = before.lstrip().startswith("- ") and block.lstrip().startswith("- ")
            pieces.append("\n" if both_items else "\n\n")
        pieces.append(block)
    return "".join(pieces) + "\n" if pieces else ""
