"""Extracts the text layer of PDF files, page by page, and lists the pages that need OCR."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import closing
from ctypes import byref, c_double
from dataclasses import dataclass
from statistics import median
from typing import Any

from armarium.retrieval.chunks import ExtractedText, ExtractLimits, join_pages
from armarium.retrieval.encodings import clean
from armarium.retrieval.errors import ExtractFailed
from armarium.retrieval.extractors.reading_order import Fragment, page_text

_WORD = re.compile(r"\S+")
_WIDE_GAP = 1.5
"""In letter heights. A wider gap separates columns, not words."""
_LIGATURES = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}
_CONTROLS = dict.fromkeys([*range(9), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F, 0xFFFF])
_HYPHEN_MARK = "\ufffe"
_LINE_ENDS = re.compile(rf"[\r\n]|(?<={_HYPHEN_MARK})")
_HYPHENATED = re.compile(rf"([^\W\d_])[-\u00ad\u2010{_HYPHEN_MARK}]\n([^\W\d_]\S*) ?")
_UNDEFINED = frozenset({"Co", "Cn"})
_VOWEL = re.compile(r"[aeiouyAEIOUY]")
_LETTERS = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class PdfText(ExtractedText):
    """The text of a PDF, and the pages without usable text."""

    needs_ocr: tuple[int, ...] = ()
    """Pages, counted from 1, that are scanned or have a garbled text layer."""
    pages_left_out: int = 0
    """Pages beyond the limit."""


def pdfium() -> Any:
    import pypdfium2  # pyright: ignore[reportMissingTypeStubs] it has none

    return pypdfium2


def extract_pdf(data: bytes, limits: ExtractLimits) -> PdfText:
    """The text of every page. Damaged pages have no text; a document without any readable page fails."""
    pypdfium2 = pdfium()
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise ExtractFailed("the PDF is protected by a password") from error
        raise ExtractFailed("the PDF is damaged") from error
    with closing(document):
        count = len(document)
        pages: list[str] = []
        needs_ocr: list[int] = []
        damaged = 0
        for number in range(1, min(count, limits.max_pages) + 1):
            try:
                text, is_picture = _page(document, number - 1)
            except pypdfium2.PdfiumError:
                text, is_picture, damaged = "", False, damaged + 1
            pages.append(text)
            needs_ocr += [number] if is_picture else []
        if damaged == len(pages):
            raise ExtractFailed("the PDF has no readable page")
        title = str(document.get_metadata_value("Title")).strip()
    joined, page_starts = join_pages(pages)
    return PdfText(
        joined,
        title=clean(title) or None,
        page_starts=page_starts,
        needs_ocr=tuple(needs_ocr),
        pages_left_out=max(0, count - limits.max_pages),
    )


def _page(document: Any, index: int) -> tuple[str, bool]:
    with closing(document[index]) as page:
        with closing(page.get_textpage()) as text_page:
            text = _normalised(page_text(list(_fragments(text_page))))
        return text, _is_picture(page, text)


def _fragments(text_page: Any) -> Iterator[Fragment]:
    """The lines that PDFium finds, split at wide gaps, because a line may cross two columns."""
    box = _box_reader(text_page)
    for number, (start, line) in enumerate(_numbered_lines(page_characters(text_page))):
        words = [(start + word.start(), start + word.end() - 1, word[0]) for word in _WORD.finditer(line)]
        boxes = [(box(first), box(last)) for first, last, _ in words]
        if not words:
            continue
        wide = _WIDE_GAP * median(top - bottom for begin, _ in boxes for _, bottom, _, top in [begin])
        begin = 0
        for index in range(1, len(words) + 1):
            if index == len(words) or boxes[index][0][0] - boxes[index - 1][1][2] > max(wide, 1.0):
                ends = [side for pair in boxes[begin:index] for side in pair]
                yield Fragment(
                    " ".join(word for _, _, word in words[begin:index]),
                    number,
                    left=min(left for left, _, _, _ in ends),
                    right=max(right for _, _, right, _ in ends),
                    bottom=min(bottom for _, bottom, _, _ in ends),
                    top=max(top for _, _, _, top in ends),
                )
                begin = index


def _box_reader(text_page: Any) -> Callable[[int], tuple[float, float, float, float]]:
    """Reads the bounding boxes of characters (left, bottom, right, top), always into the same buffers."""
    ask, page = pdfium().raw.FPDFText_GetCharBox, text_page.raw
    left, right, bottom, top = c_double(), c_double(), c_double(), c_double()
    references = byref(left), byref(right), byref(bottom), byref(top)

    def read(index: int) -> tuple[float, float, float, float]:
        ask(page, index, *references)
        return left.value, bottom.value, right.value, top.value

    return read


def page_characters(text_page: Any) -> str:
    """The text with one character per PDFium character, so that positions in both are the same."""
    count: int = text_page.count_chars()
    text: str = text_page.get_text_range() if count else ""
    if len(text) == count:
        return text
    unicode = pdfium().raw.FPDFText_GetUnicode
    return "".join(chr(unicode(text_page.raw, index) or 0xFFFD) for index in range(count))


def _numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line and its start. PDFium replaces a hyphen and the line break after it by a mark."""
    start = 0
    for line in _LINE_ENDS.split(text):
        yield start, line
        start += len(line) + (0 if line.endswith(_HYPHEN_MARK) else 1)


def _normalised(text: str) -> str:
    """Resolve ligatures, join hyphenated words, and remove control characters."""
    text = _HYPHENATED.sub(_rejoined, text.translate(_LIGATURES))
    return clean(text.replace(_HYPHEN_MARK, "-").translate(_CONTROLS))


def _rejoined(cut: re.Match[str]) -> str:
    # Before a capital letter, the hyphen belongs to the word: `Anglo-` / `Saxon`.
    return f"{cut[1]}{'' if cut[2][0].islower() else '-'}{cut[2]}\n"


def _is_picture(page: Any, text: str) -> bool:
    """Whether the page needs OCR: a scan, text drawn as outlines, or garbled fonts."""
    visible = sum(map(len, text.split()))
    if not text.isascii():
        undefined = sum(1 for char in text if char == "\ufffd" or unicodedata.category(char) in _UNDEFINED)
        if undefined > 0.05 * visible:
            return True
    words = _LETTERS.findall(text)
    if len(words) >= 20 and text.isascii() and sum(1 for word in words if not _VOWEL.search(word)) > 0.4 * len(words):
        return True
    if visible >= 200:
        return False
    image_share, paths = _drawn(page)
    if visible == 0:
        return image_share > 0.05 or paths > 200
    return image_share > 0.5 or (visible < 25 and paths > 200)


def _drawn(page: Any) -> tuple[float, int]:
    """The share of the page covered by its largest image, and the number of drawn paths."""
    raw = pdfium().raw
    width, height = page.get_size()
    largest, paths = 0.0, 0
    for shape in page.get_objects(max_depth=3):
        if shape.type == raw.FPDF_PAGEOBJ_IMAGE:
            left, bottom, right, top = shape.get_bounds()
            covered = max(0.0, min(right, width) - max(left, 0.0)) * max(0.0, min(top, height) - max(bottom, 0.0))
            largest = max(largest, covered / (width * height or 1.0))
        elif shape.type == raw.FPDF_PAGEOBJ_PATH:
            paths += 1
    return largest, paths
