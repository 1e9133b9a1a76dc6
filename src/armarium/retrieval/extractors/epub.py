"""Extracts EPUB books as Markdown, in the order they are read."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from armarium.retrieval.chunks import Extracted
from armarium.retrieval.encodings import clean, decode
from armarium.retrieval.extractors.errors import ExtractFailed
from armarium.retrieval.extractors.html import render
from armarium.retrieval.extractors.limits import Limits
from armarium.retrieval.extractors.package import Package

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_PAGE_TYPES = frozenset({"application/xhtml+xml", "text/html"})


def extract_epub(data: bytes, limits: Limits) -> Extracted:
    """The chapters, as the book's spine puts them."""
    package = Package(data, limits)
    opf = _rootfile(package)
    book = package.xml(opf)
    chapters: list[str] = []
    locked = _locked(package)
    for name in _reading_order(book, posixpath.dirname(opf)):
        if name in locked:
            raise ExtractFailed("the book is under a lock")
        if name in package and (lines := render(decode(package.read(name))).lines):
            chapters.append("\n".join(lines))
    return Extracted(
        clean("\n\n".join(chapters) + "\n" if chapters else ""), structure="markdown", title=_first_text(book, "title")
    )


def _rootfile(package: Package) -> str:
    for element in package.xml(_CONTAINER).iter():
        if _local(element) == "rootfile" and (path := element.get("full-path")):
            return path
    raise ExtractFailed("the book does not say where it begins")


def _locked(package: Package) -> set[str]:
    """The parts only a licence opens. Fonts are often among them, and do no harm."""
    if _ENCRYPTION not in package:
        return set()
    named = (element for element in package.xml(_ENCRYPTION).iter() if _local(element) == "CipherReference")
    return {unquote(element.get("URI", "")) for element in named}


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _first_text(book: Element, name: str) -> str | None:
    texts = (" ".join((element.text or "").split()) for element in book.iter() if _local(element) == name)
    return next(filter(None, texts), None)


def _reading_order(book: Element, folder: str) -> list[str]:
    items = {
        element.get("id", ""): posixpath.normpath(posixpath.join(folder, unquote(element.get("href", ""))))
        for element in book.iter()
        if _local(element) == "item" and element.get("media-type") in _PAGE_TYPES
    }
    spine = [element.get("idref", "") for element in book.iter() if _local(element) == "itemref"]
    # A chapter that is named twice is read once: naming one a million times is a way to fill a disk.
    return list(dict.fromkeys(items[reference] for reference in spine if reference in items))
