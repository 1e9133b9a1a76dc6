"""Draws one page of a PDF, and finds where a quote stands on it."""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from ctypes import byref, c_int
from dataclasses import dataclass
from typing import Any, Final

from armarium.retrieval.errors import ExtractFailed
from armarium.retrieval.extractors.pdf import page_characters, pdfium

MIN_WIDTH: Final = 50
MAX_WIDTH: Final = 3000
MAX_PIXELS: Final = 8_000_000
"""Of one image. A page that is higher than that allows is drawn narrower."""
MAX_QUOTE: Final = 20_000
"""Characters of a quote."""
MAX_BOXES: Final = 400
BYTES_PER_PIXEL: Final = 3
_COMPRESSION: Final = 6
_SEED: Final = 12
"""So many letters in a row must be the same for a part of the quote to count as found."""
_DEVICE: Final = 1_000_000
"""The coordinates of PDFium's imaginary device."""
_SAME_LINE: Final = 0.5
"""Characters that overlap vertically by this share of their height are on one line."""
_FARTHEST: Final = 3.0
"""In heights of a character: a wider gap begins another rectangle."""

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, as shares of the width and height of the page."""
_CharBox = tuple[float, float, float, float]
"""Left, bottom, right and top, in PDFium's coordinates, in which text runs from left to right."""


class NoSuchPage(Exception):
    """The document has fewer pages."""

    def __init__(self, pages: int) -> None:
        super().__init__(pages)
        self.pages = pages


@dataclass(frozen=True, slots=True)
class DrawnPage:
    """The pixels of a page: rows of red, green and blue, each after a zero, compressed."""

    pages: int
    width: int
    height: int
    pixels: bytes


@dataclass(frozen=True, slots=True)
class PlacedQuote:
    """The rectangles of a quote on a page, line by line."""

    pages: int
    width_points: float
    height_points: float
    found: float
    """The share of the quote's letters that are on the page."""
    boxes: list[Box]


def draw_page(data: bytes, number: int, width: int) -> DrawnPage:
    """Draw a page, counted from 1, at most `width` pixels wide."""
    with _opened(data, number) as (document, page):
        page_width, page_height = _size(page)
        scale = min(width / page_width, (MAX_PIXELS / (page_width * page_height)) ** 0.5)
        bitmap = page.render(scale=scale, rev_byteorder=True, prefer_bgrx=False, fill_color=(255, 255, 255, 255))
        with closing(bitmap):
            if bitmap.n_channels != BYTES_PER_PIXEL or bitmap.width * bitmap.height > 2 * MAX_PIXELS:
                raise ExtractFailed("the page cannot be drawn")
            rows = memoryview(bitmap.buffer).cast("B")
            used = bitmap.width * BYTES_PER_PIXEL
            compressor = zlib.compressobj(_COMPRESSION)
            parts: list[bytes] = []
            for start in range(0, bitmap.height * bitmap.stride, bitmap.stride):
                parts.append(compressor.compress(b"\0" + rows[start : start + used]))
            parts.append(compressor.flush())
            return DrawnPage(len(document), bitmap.width, bitmap.height, b"".join(parts))


def place_quote(data: bytes, number: int, quote: str) -> PlacedQuote:
    """Find the lines of a quote on a page, counted from 1. The order of the text may differ from the page's."""
    with _opened(data, number) as (document, page):
        width, height = _size(page)
        with closing(page.get_textpage()) as text_page:
            letters, places = _letters(page_characters(text_page))
            wanted, _ = _letters(quote[:MAX_QUOTE])
            matched = list(_matches(wanted, letters))
            boxes = list(_boxes(page, text_page, [places[start:end] for start, end in matched]))
        found = sum(end - start for start, end in matched) / len(wanted) if wanted else 0.0
        return PlacedQuote(len(document), width, height, min(1.0, found), boxes[:MAX_BOXES])


@contextmanager
def _opened(data: bytes, number: int) -> Generator[tuple[Any, Any]]:
    """The document and one of its pages."""
    library = pdfium()
    try:
        with closing(library.PdfDocument(data)) as document:
            if not 1 <= number <= len(document):
                raise NoSuchPage(len(document))
            with closing(document[number - 1]) as page:
                yield document, page
    except library.PdfiumError as error:
        raise ExtractFailed("the page cannot be read") from error


def _size(page: Any) -> tuple[float, float]:
    width, height = page.get_size()
    return max(width, 1.0), max(height, 1.0)


def _letters(text: str) -> tuple[str, list[int]]:
    """The letters and digits of a text without regard to case and form, and the place of each."""
    letters: list[str] = []
    places: list[int] = []
    for place, character in enumerate(text):
        for letter in unicodedata.normalize("NFKC", character).casefold():
            if letter.isalnum():
                letters.append(letter)
                places.append(place)
    return "".join(letters), places


def _matches(wanted: str, letters: str) -> Iterator[tuple[int, int]]:
    """The parts of `letters` that are parts of what is wanted."""
    position = after = 0
    while position < len(wanted):
        seed = wanted[position : position + _SEED]
        if len(seed) < _SEED and position:
            return
        # After the previous part if possible: the same words may be on the page twice.
        start = letters.find(seed, after)
        if start < 0:
            start = letters.find(seed)
        if start < 0:
            position += 1
            continue
        length = len(seed)
        while (
            position + length < len(wanted)
            and start + length < len(letters)
            and wanted[position + length] == letters[start + length]
        ):
            length += 1
        yield start, start + length
        position, after = position + length, start + length


def _boxes(page: Any, text_page: Any, runs: list[list[int]]) -> Iterator[Box]:
    """The rectangles around runs of characters: one for each line of a run."""
    for run in runs:
        lines: list[_CharBox] = []
        for place in dict.fromkeys(run):
            box: _CharBox = text_page.get_charbox(place, loose=True)
            if lines and _continues(lines[-1], box):
                line = lines[-1]
                lines[-1] = min(line[0], box[0]), min(line[1], box[1]), max(line[2], box[2]), max(line[3], box[3])
            else:
                lines.append(box)
        yield from filter(None, (_on_page(page, line) for line in lines))


def _continues(line: _CharBox, box: _CharBox) -> bool:
    height = min(line[3] - line[1], box[3] - box[1])
    overlap = min(line[3], box[3]) - max(line[1], box[1])
    gap = max(box[0] - line[2], line[0] - box[2])
    return overlap >= _SAME_LINE * height and gap <= _FARTHEST * height


def _on_page(page: Any, box: _CharBox) -> Box | None:
    """A box of PDFium as shares of the page as it is shown, rotated and cropped; None if it has no extent."""
    left, bottom, right, top = box
    corners = [_shares(page, x, y) for x, y in ((left, top), (right, bottom))]
    xs, ys = zip(*corners, strict=True)
    placed = min(xs), min(ys), max(xs), max(ys)
    return placed if placed[2] > placed[0] and placed[3] > placed[1] else None


def _shares(page: Any, x: float, y: float) -> tuple[float, float]:
    device_x, device_y = c_int(), c_int()
    pdfium().raw.FPDF_PageToDevice(page.raw, 0, 0, _DEVICE, _DEVICE, 0, x, y, byref(device_x), byref(device_y))
    return _share(device_x.value), _share(device_y.value)


def _share(device: int) -> float:
    return min(1.0, max(0.0, device / _DEVICE))
