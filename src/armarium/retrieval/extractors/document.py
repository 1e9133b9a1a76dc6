"""The one door to extraction: takes a document of any known format and returns its text, or `ExtractFailed`."""

from __future__ import annotations

from armarium.retrieval.chunks import Extracted
from armarium.retrieval.document_types import Format
from armarium.retrieval.extractors.errors import ExtractFailed
from armarium.retrieval.extractors.limits import DEFAULT_LIMITS, Limits

EXTRACTABLE = frozenset({"code", "text", "md", "data", "html", "pdf", "word", "slides", "sheet", "epub", "email"})
"""The document types that have text of their own."""


def extract(form: Format, data: bytes, *, limits: Limits = DEFAULT_LIMITS) -> Extracted:
    """The text of a document. Whatever is wrong with it, only `ExtractFailed` is raised."""
    try:
        return _extract(form, data, limits)
    except ExtractFailed:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise ExtractFailed(f"the {form.name} document cannot be read", private={"cause": kind}) from error


def _extract(form: Format, data: bytes, limits: Limits) -> Extracted:
    # Each reader is imported when its first document comes: a corpus of notes never loads the one for PDF.
    match form.doc_type, form.name:
        case "data", "ipynb":
            from armarium.retrieval.extractors.notebook import extract_notebook

            return extract_notebook(data)
        case (("code" | "text" | "md" | "data"), _):
            from armarium.retrieval.extractors.plain import extract_plain

            return extract_plain(form, data)
        case "html", _:
            from armarium.retrieval.extractors.html import extract_html

            return extract_html(data)
        case "pdf", _:
            from armarium.retrieval.extractors.pdf import extract_pdf

            return extract_pdf(data, limits)
        case "word", _:
            from armarium.retrieval.extractors.word import extract_word

            return extract_word(data, limits)
        case "slides", _:
            from armarium.retrieval.extractors.slides import extract_slides

            return extract_slides(data, limits)
        case "sheet", _:
            from armarium.retrieval.extractors.sheet import extract_sheet

            return extract_sheet(data, limits)
        case "epub", _:
            from armarium.retrieval.extractors.epub import extract_epub

            return extract_epub(data, limits)
        case "email", "mbox":
            from armarium.retrieval.extractors.mail import extract_mailbox

            return extract_mailbox(data, limits)
        case "email", _:
            from armarium.retrieval.extractors.mail import extract_message

            return extract_message(data)
        case _:
            raise ExtractFailed(f"there is no text to take from a file of type {form.doc_type}")
