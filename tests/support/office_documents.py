"""Builds office documents and books for tests, valid and damaged."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping

import docx
import openpyxl
import pptx
from pptx.util import Inches


def word_document() -> bytes:
    document = docx.Document()
    document.core_properties.title = "The report"
    document.add_heading("The report", level=0)
    document.add_heading("Findings", level=1)
    paragraph = document.add_paragraph("Text with ")
    paragraph.add_run("bold").bold = True
    paragraph.add_run(" words.")
    document.add_paragraph("first point", style="List Bullet")
    document.add_paragraph("second point", style="List Bullet")
    table = document.add_table(rows=2, cols=2)
    for row, cells in zip(table.rows, [("Name", "Size"), ("pear", "3")], strict=True):
        for cell, text in zip(row.cells, cells, strict=True):
            cell.text = text
    document.add_heading("Deep", level=3)
    document.add_paragraph("The end.")
    return _saved(document.save)


def presentation() -> bytes:
    deck = pptx.Presentation()
    deck.core_properties.title = "The talk"
    first = deck.slides.add_slide(deck.slide_layouts[1])
    first.shapes.title.text = "Opening"
    body = first.placeholders[1].text_frame
    body.text = "top point"
    nested = body.add_paragraph()
    nested.text, nested.level = "nested point", 1
    first.notes_slide.notes_text_frame.text = "remember to smile"
    second = deck.slides.add_slide(deck.slide_layouts[5])
    second.shapes.title.text = "Numbers"
    table = second.shapes.add_table(2, 2, Inches(1), Inches(2), Inches(4), Inches(1)).table
    for row, cells in enumerate([("Year", "Sum"), ("2024", "7")]):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text
    deck.slides.add_slide(deck.slide_layouts[6])
    return _saved(deck.save)


def workbook(rows: Mapping[str, list[list[object]]]) -> bytes:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, lines in rows.items():
        sheet = book.create_sheet(name)
        for line in lines:
            sheet.append(line)
    return _saved(book.save)


def book(
    chapters: Mapping[str, str], *, spine: list[str] | None = None, extra: Mapping[str, str] | None = None
) -> bytes:
    items = "".join(
        f'<item id="{name}" href="text/{name}.xhtml" media-type="application/xhtml+xml"/>' for name in chapters
    )
    order = "".join(f'<itemref idref="{name}"/>' for name in (spine or list(chapters)))
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OPS/book.opf"/></rootfiles></container>',
        "OPS/book.opf": '<package xmlns="http://www.idpf.org/2007/opf"><metadata '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>A small book</dc:title></metadata>'
        f"<manifest>{items}</manifest><spine>{order}</spine></package>",
        **{f"OPS/text/{name}.xhtml": f"<html><body>{body}</body></html>" for name, body in chapters.items()},
        **(extra or {}),
    }
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return target.getvalue()


def with_parts(document: bytes, parts: Mapping[str, bytes | Callable[[bytes], bytes]]) -> bytes:
    """The same document, some parts replaced or changed, others added."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(document)) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as changed:
        contents = {name: source.read(name) for name in source.namelist()}
        for name, part in parts.items():
            contents[name] = part if isinstance(part, bytes) else part(contents[name])
        for name, content in contents.items():
            changed.writestr(name, content)
    return target.getvalue()


def with_entity_bomb(xml: bytes) -> bytes:
    """An XML part that says little and means gigabytes, its first element using it."""
    entities = b'<!ENTITY a0 "ha">' + b"".join(
        b'<!ENTITY a%d "%s">' % (level, b"&a%d;" % (level - 1) * 10) for level in range(1, 10)
    )
    xml = xml[xml.index(b"?>") + 2 :].lstrip() if xml.startswith(b"<?") else xml
    root = xml[1:].split(None, 1)[0].rstrip(b">")
    first_tag_end = xml.index(b">") + 1
    return b"<!DOCTYPE %s [%s]>" % (root, entities) + xml[:first_tag_end] + b"&a9;" + xml[first_tag_end:]


def _saved(save: Callable[[io.BytesIO], object]) -> bytes:
    target = io.BytesIO()
    save(target)
    return target.getvalue()
