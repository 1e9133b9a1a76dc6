"""Extracts the text of a document of any supported format."""

from __future__ import annotations

from armarium.retrieval.chunks import DEFAULT_LIMITS, ExtractedText, ExtractLimits, Structure
from armarium.retrieval.document_types import DocumentFormat
from armarium.retrieval.encodings import decode
from armarium.retrieval.errors import ExtractFailed

_STRUCTURES: dict[str, Structure] = {"code": "code", "md": "markdown"}
_ROW_FORMATS = frozenset({"csv", "tsv", "jsonl"})


def extract_document(form: DocumentFormat, data: bytes, *, limits: ExtractLimits = DEFAULT_LIMITS) -> ExtractedText:
    """The text of a document. Raises `ExtractFailed`, and nothing else, when it cannot be extracted."""
    try:
        return _extract(form, data, limits)
    except ExtractFailed:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise ExtractFailed(f"the {form.name} document cannot be read", private={"cause": kind}) from error


def _extract(form: DocumentFormat, data: bytes, limits: ExtractLimits) -> ExtractedText:
    # Extractors are imported on first use: a corpus of notes never loads the one for PDF.
    match form.doc_type, form.name:
        case "data", "ipynb":
            from armarium.retrieval.extractors.notebook import extract_notebook

            return extract_notebook(data)
        case (("code" | "text" | "md" | "data"), _):
            language = form.name if form.doc_type == "code" else None
            structure = _STRUCTURES.get(form.doc_type) or ("rows" if form.name in _ROW_FORMATS else "plain")
            return ExtractedText(decode(data), structure=structure, language=language, is_file=True)
        case "html", _:
            from armarium.retrieval.extractors.html import extract_html

            return extract_html(data)
        case "pdf", _:
            from armarium.retrieval.extractors.pdf import extract_pdf

            return extract_pdf(data, limits)
        case (("word" | "slides" | "sheet" | "epub") as zipped, _):
            from armarium.retrieval.extractors.epub import extract_epub
            from armarium.retrieval.extractors.sheet import extract_sheet
            from armarium.retrieval.extractors.slides import extract_slides
            from armarium.retrieval.extractors.word import extract_word

            extractors = {"word": extract_word, "slides": extract_slides, "sheet": extract_sheet, "epub": extract_epub}
            return extractors[zipped](data, limits)
        case "email", name:
            from armarium.retrieval.extractors.mail import extract_mailbox, extract_message

            return extract_mailbox(data, limits) if name == "mbox" else extract_message(data)
        case _:
            raise ExtractFailed(f"a file of type {form.doc_type} contains no text")
