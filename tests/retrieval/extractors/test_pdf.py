"""PDF text is extracted page by page, in reading order; pages that need OCR are listed."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reportlab.lib.pagesizes import A4
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.lib.utils import ImageReader
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

from armarium.retrieval.chunks import ExtractLimits
from armarium.retrieval.document_types import DocumentFormat
from armarium.retrieval.errors import ExtractFailed
from armarium.retrieval.extractors.document import extract_document
from armarium.retrieval.extractors.pdf import PdfText
from armarium.retrieval.extractors.reading_order import Fragment, in_reading_order

PDF = DocumentFormat("pdf", "pdf")
FONT, SIZE, PITCH = "Helvetica", 10, 12


def pdf(*draw_pages: Callable[[Canvas], object], encrypt: StandardEncryption | None = None, title: str = "") -> bytes:
    target = io.BytesIO()
    canvas = Canvas(target, pagesize=A4, encrypt=encrypt)
    canvas.setTitle(title)
    for draw in draw_pages:
        canvas.setFont(FONT, SIZE)
        draw(canvas)
        canvas.showPage()
    canvas.save()
    return target.getvalue()


def lines_at(*lines: str, left: float = 60, top: float = 760) -> Callable[[Canvas], None]:
    def draw(canvas: Canvas) -> None:
        for number, line in enumerate(lines):
            canvas.drawString(left, top - PITCH * number, line)

    return draw


def extracted(data: bytes, limits: ExtractLimits | None = None) -> PdfText:
    result = extract_document(PDF, data, limits=limits or ExtractLimits())
    assert isinstance(result, PdfText)
    return result


def pages_of(result: PdfText) -> list[str]:
    assert result.page_starts is not None
    starts = list(result.page_starts)
    return [result.text[start:end] for start, end in zip(starts, [*starts[1:], len(result.text)], strict=True)]


def column(prefix: str, width: float, count: int) -> list[str]:
    """Lines of numbered words that fill a column."""
    lines, line, number = [], "", 0
    while len(lines) < count:
        word = f"{prefix}{number}"
        if stringWidth(f"{line} {word}", FONT, SIZE) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
        number += 1
    return lines


def columns_page(columns: Sequence[tuple[float, list[str]]], title: str, *, order: str) -> Callable[[Canvas], None]:
    def draw(canvas: Canvas) -> None:
        placed = [(left, 740 - PITCH * row, line) for left, lines in columns for row, line in enumerate(lines)]
        if order == "row by row":
            placed.sort(key=lambda item: -item[1])
        elif order == "right column first":
            placed.sort(key=lambda item: -item[0])
        elif order == "scrambled":
            random.Random(7).shuffle(placed)
        for left, height, line in placed:
            canvas.drawString(left, height, line)
        canvas.drawString(60, 770, title)

    return draw


TITLE = "A title that stands above all of the columns and is as wide as the page itself, nearly"


@pytest.mark.parametrize("order", ["column by column", "row by row", "right column first", "scrambled"])
def test_columns_are_read_one_after_the_other(order: str) -> None:
    left, right = column("left", 220, 40), column("right", 220, 38)
    page = columns_page([(60, left), (310, right)], TITLE, order=order)
    text = extracted(pdf(page)).text
    assert [line for line in text.split("\n") if line] == [TITLE, *left, *right]


def test_three_columns_are_read_one_after_the_other() -> None:
    columns = [(60.0, column("first", 140, 30)), (230.0, column("second", 140, 30)), (400.0, column("third", 140, 30))]
    text = extracted(pdf(columns_page(columns, TITLE, order="row by row"))).text
    assert [line for line in text.split("\n") if line] == [TITLE, *(line for _, lines in columns for line in lines)]


def test_what_spans_the_columns_stays_between_what_is_above_and_below() -> None:
    upper = [column(name, 220, 10) for name in ("a", "b")]
    lower = [column(name, 220, 10) for name in ("c", "d")]
    heading = "A heading in the middle of the page that spans both of the columns from side to side, nearly"

    def draw(canvas: Canvas) -> None:
        for row in range(10):
            for side, left in enumerate((60, 310)):
                canvas.drawString(left, 740 - PITCH * row, upper[side][row])
                canvas.drawString(left, 500 - PITCH * row, lower[side][row])
        canvas.drawString(60, 560, heading)

    text = extracted(pdf(draw)).text
    assert [line for line in text.split("\n") if line] == [*upper[0], *upper[1], heading, *lower[0], *lower[1]]


def test_a_page_number_between_the_columns_comes_last() -> None:
    left, right = column("left", 220, 40), column("right", 220, 40)

    def draw(canvas: Canvas) -> None:
        canvas.drawString(292, 40, "17")
        columns_page([(60, left), (310, right)], TITLE, order="row by row")(canvas)

    assert [line for line in extracted(pdf(draw)).text.split("\n") if line] == [TITLE, *left, *right, "17"]


BODY = [f"B{number:02} is a line of the only column" for number in range(10)]


def placed(*texts: tuple[float, float, str]) -> Callable[[Canvas], None]:
    def draw(canvas: Canvas) -> None:
        for left, height, text in texts:
            canvas.drawString(left, height, text)

    return draw


def drawn_lines(*draw: Callable[[Canvas], None]) -> list[str]:
    """The lines of a page on which so much is painted, in that order."""

    def page(canvas: Canvas) -> None:
        for each in draw:
            each(canvas)

    return [line for line in extracted(pdf(page)).text.split("\n") if line]


def test_what_is_painted_late_or_early_is_read_where_it_stands() -> None:
    body, title, footer = lines_at(*BODY), placed((60, 800, "Title")), placed((60, 40, "Footer"))
    header_and_footer = placed((60, 820, "Header"), (60, 40, "Footer"))
    assert drawn_lines(body, title) == ["Title", *BODY]
    assert drawn_lines(footer, body) == [*BODY, "Footer"]
    assert drawn_lines(footer, body, title) == ["Title", *BODY, "Footer"]
    assert drawn_lines(header_and_footer, body, title) == ["Header", "Title", *BODY, "Footer"]


@pytest.mark.parametrize("left", [60, 280, 480])
def test_short_lines_above_and_below_two_columns_are_read_before_and_after_both(left: float) -> None:
    columns = [(60.0, column("left", 220, 30)), (310.0, column("right", 220, 30))]
    body = columns_page(columns, "", order="column by column")
    title, footer = placed((left, 790, "Title")), placed((left, 40, "Footer"))
    expected = ["Title", *columns[0][1], *columns[1][1], "Footer"]
    assert drawn_lines(title, body, footer) == expected
    assert drawn_lines(footer, body, title) == expected


def test_a_column_that_begins_higher_or_ends_lower_than_the_other_stays_whole() -> None:
    left, right = column("left", 220, 30), column("right", 220, 30)
    higher = [(310.0, 740.0 - PITCH * (row - 2), line) for row, line in enumerate(right)]
    lower = [(60.0, 740.0 - PITCH * row, line) for row, line in enumerate(left)]
    assert drawn_lines(placed(*lower), placed(*higher)) == [*left, *right]


def test_short_blocks_side_by_side_stay_as_the_file_has_them() -> None:
    sender, date = ["The Keeper", "Lighthouse 1", "Harbour"], ["Monday", "Reference 7"]
    letter = drawn_lines(lines_at(*sender), lines_at(*date, left=400, top=766), lines_at(*BODY, top=600))
    assert letter == [*sender, *date, *BODY]


def test_the_rows_of_a_table_stay_rows() -> None:
    def draw(canvas: Canvas) -> None:
        for row in range(12):
            for cell, left in enumerate((60, 220, 380)):
                canvas.drawString(left, 740 - PITCH * row, f"r{row}c{cell}")

    assert extracted(pdf(draw)).text.split("\n")[:2] == ["r0c0 r0c1 r0c2", "r1c0 r1c1 r1c2"]


def test_words_cut_at_a_line_end_are_whole_again() -> None:
    page = lines_at(
        "The end of this line is hyphen-", "ated, and the Anglo-", "Saxon and the years 2019-", "2020 are not."
    )
    assert extracted(pdf(page)).text == (
        "The end of this line is hyphenated,\nand the Anglo-Saxon\nand the years 2019-\n2020 are not.\n"
    )


def test_paragraphs_stand_apart() -> None:
    def draw(canvas: Canvas) -> None:
        lines_at("one", "two", "three")(canvas)
        lines_at("four", "five", top=690)(canvas)

    assert extracted(pdf(draw)).text == "one\ntwo\nthree\n\nfour\nfive\n"


def test_every_page_has_its_start_and_an_empty_page_no_length() -> None:
    result = extracted(pdf(lines_at("first"), lambda canvas: None, lines_at("third"), title="A paper"))
    assert pages_of(result) == ["first\n", "", "third\n"]
    assert (result.title, result.needs_ocr, result.structure) == ("A paper", (), "plain")


def test_pages_that_are_pictures_are_told_for_ocr() -> None:
    from PIL import Image

    scan = ImageReader(Image.new("RGB", (60, 80), "gray"))

    def scanned(canvas: Canvas) -> None:
        canvas.drawImage(scan, 0, 0, *A4)

    def stamped(canvas: Canvas) -> None:
        scanned(canvas)
        lines_at("RECEIVED")(canvas)

    result = extracted(pdf(lines_at("digital"), scanned, stamped))
    assert result.needs_ocr == (2, 3)
    assert pages_of(result)[1] == ""


def test_pages_behind_the_limit_are_left_out_and_counted() -> None:
    result = extracted(pdf(*[lines_at(f"page {number}") for number in range(5)]), ExtractLimits(max_pages=2))
    assert pages_of(result) == ["page 0\n", "page 1\n"]
    assert result.pages_left_out == 3


def test_a_pdf_with_a_password_fails_with_that_reason() -> None:
    with pytest.raises(ExtractFailed, match="password"):
        extract_document(PDF, pdf(lines_at("secret"), encrypt=StandardEncryption("opensesame")))


@pytest.mark.parametrize(
    ("pattern", "lie"),
    [
        (rb"/Count \d+", b"/Count 2000000000"),
        (rb"/Length \d+", b"/Length 999999999"),
        (rb"/Length \d+", b"/Length 1"),
        (rb"startxref\n\d+", b"startxref\n99999999"),
    ],
)
def test_a_pdf_that_lies_about_its_sizes_is_read_all_the_same(pattern: bytes, lie: bytes) -> None:
    data, lies = re.subn(pattern, lie, pdf(lines_at("the truth")))
    assert lies
    assert extracted(data).text == "the truth\n"


@pytest.mark.parametrize("data", [b"", b"%PDF-1.7", b"%PDF-1.7\n" + b"\0" * 5000, b"plain words"])
def test_what_is_no_pdf_fails(data: bytes) -> None:
    with pytest.raises(ExtractFailed) as failed:
        extract_document(PDF, data)
    assert failed.value.code == "EXTRACT_FAILED"


SMALL = pdf(lines_at("one", "two"), lines_at("three"))


@given(st.integers(0, len(SMALL) - 1), st.binary(min_size=1, max_size=30))
def test_a_damaged_pdf_is_read_or_fails_and_nothing_else(position: int, damage: bytes) -> None:
    data = SMALL[:position] + damage + SMALL[position + len(damage) :]
    try:
        result = extracted(data)
    except ExtractFailed:
        return
    assert result.page_starts is not None
    assert list(result.page_starts) == sorted(result.page_starts)
    result.text.encode()


coordinates = st.floats(-1000, 1000)
FRAGMENTS = st.builds(
    lambda text, line, left, width, bottom, height: Fragment(text, line, left, left + width, bottom, bottom + height),
    st.text(max_size=30), st.integers(0, 20), coordinates, st.floats(0, 500), coordinates, st.floats(0, 50),
)  # fmt: skip


@given(st.lists(FRAGMENTS, max_size=60))
def test_ordering_loses_and_invents_nothing(fragments: list[Fragment]) -> None:
    assert sorted(map(id, in_reading_order(fragments))) == sorted(map(id, fragments))
