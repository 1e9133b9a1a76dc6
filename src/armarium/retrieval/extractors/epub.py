"""Extracts EPUB books as Markdown, in reading order."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from armarium.retrieval.chunks import ExtractedText, ExtractLimits
from armarium.retrieval.encodings import clean, decode
from armarium.retrieval.errors import ExtractFailed
from armarium.retrieval.extractors.html import render
from armarium.retrieval.extractors.package import Package

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_PAGE_TYPES = frozenset({"application/xhtml+xml", "text/html"})


def extract_epub(data: bytes, limits: ExtractLimits) -> ExtractedText:
    """The chapters in the order of the book's spine."""
    package = Package(data, limits)
    paths = (element.get("full-path") for element in package.xml(_CONTAINER).iter() if _local(element) == "rootfile")
    if (opf := next(filter(None, paths), None)) is None:
        raise ExtractFailed("the book has no package document")
    book = package.xml(opf)
    chapters: list[str] = []
    # Fonts are often encrypted, and are not needed.
    ciphers = package.xml(_ENCRYPTION).iter() if _ENCRYPTION in package else ()
    encrypted = {unquote(each.get("URI", "")) for each in ciphers if _local(each) == "CipherReference"}
    for name in _reading_order(book, posixpath.dirname(opf)):
        if name in encrypted:
            raise ExtractFailed("the book is encrypted")
        if name in package and (lines := render(decode(package.read(name))).lines):
            chapters.append("\n".join(lines))
    titles = (" ".join((element.text or "").split()) for element in book.iter() if _local(element) == "title")
    text = clean("\n\n".join(chapters) + "\n" if chapters else "")
    return ExtractedText(text, structure="markdown", title=next(filter(None, titles), None))


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _reading_order(book: Element, folder: str) -> list[str]:
    items = {
        element.get("id", ""): posixpath.normpath(posixpath.join(folder, unquote(element.get("href", ""))))
        for element in book.iter()
        if _local(element) == "item" and element.get("media-type") in _PAGE_TYPES
    }
    spine = [element.get("idref", "") for element in book.iter() if _local(element) == "itemref"]
    # Each chapter is read once: a hostile spine could repeat one a million times.
    return list(dict.fromkeys(items[reference] for reference in spine if reference in items))
