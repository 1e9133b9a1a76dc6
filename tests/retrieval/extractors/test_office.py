"""Word, PowerPoint and Excel documents become text; hostile documents are rejected."""

from __future__ import annotations

import builtins
import datetime
import struct
import sys
import tracemalloc
from collections.abc import Callable

import pytest

from armarium.retrieval.chunks import ExtractLimits
from armarium.retrieval.document_types import DocumentFormat, classify
from armarium.retrieval.errors import ExtractFailed
from armarium.retrieval.extractors.document import extract_document
from support.office_documents import presentation, with_entity_bomb, with_parts, word_document, workbook

DOCX, PPTX, XLSX = DocumentFormat("word", "docx"), DocumentFormat("slides", "pptx"), DocumentFormat("sheet", "xlsx")


def small_workbook() -> bytes:
    return workbook({"Sheet": [["a", "b"]]})


MAIN_PARTS = [
    (DOCX, word_document, "word/document.xml"),
    (PPTX, presentation, "ppt/presentation.xml"),
    (XLSX, small_workbook, "xl/workbook.xml"),
    (XLSX, small_workbook, "xl/worksheets/sheet1.xml"),
    (XLSX, small_workbook, "xl/styles.xml"),
]


def test_a_word_document_keeps_headings_lists_and_tables() -> None:
    result = extract_document(DOCX, word_document())
    assert result.text == (
        "# The report\n\n# Findings\n\nText with bold words.\n\n- first point\n- second point\n\n"
        "Name | Size\npear | 3\n\n### Deep\n\nThe end.\n"
    )
    assert (result.structure, result.title, result.is_file) == ("markdown", "The report", False)


def test_inserted_text_is_read_and_deleted_text_is_not() -> None:
    def changed(xml: bytes) -> bytes:
        tracked = (
            b'<w:p><w:ins w:id="1"><w:r><w:t>inserted</w:t></w:r></w:ins>'
            b'<w:del w:id="2"><w:r><w:delText>deleted</w:delText><w:t>gone</w:t></w:r></w:del></w:p>'
            b"<w:sdt><w:sdtContent><w:p><w:r><w:t>in a control</w:t></w:r></w:p></w:sdtContent></w:sdt></w:body>"
        )
        return xml.replace(b"</w:body>", tracked)

    text = extract_document(DOCX, with_parts(word_document(), {"word/document.xml": changed})).text
    assert "\n\ninserted\n\nin a control\n" in text
    assert "deleted" not in text
    assert "gone" not in text


def test_every_slide_is_a_page_with_its_notes() -> None:
    result = extract_document(PPTX, presentation())
    assert result.page_starts is not None
    starts = list(result.page_starts)
    pages = [result.text[start:end] for start, end in zip(starts, [*starts[1:], len(result.text)], strict=True)]
    assert pages == [
        "# Opening\n\ntop point\n  - nested point\n\nNotes:\nremember to smile\n",
        "# Numbers\n\nYear | Sum\n2024 | 7\n",
        "",
    ]
    assert result.title == "The talk"


def test_every_sheet_has_a_heading_and_every_row_a_line() -> None:
    data = workbook(
        {
            "First": [
                ["Name", "When", "Sum"],
                ["pear", datetime.date(2024, 5, 1), 3.0],
                [None, None, None],
                [None, True, 1.5],
            ],
            "Second": [["two\nlines", datetime.datetime(2024, 5, 1, 12, 30)]],  # noqa: DTZ001 a sheet knows no zones
        }
    )
    result = extract_document(XLSX, data)
    assert result.text == (
        "## First\n\nName | When | Sum\npear | 2024-05-01 | 3\nTRUE | 1.5\n\n"
        "## Second\n\ntwo lines | 2024-05-01 12:30:00\n"
    )


def test_a_workbook_is_read_up_to_the_limit_and_says_so() -> None:
    data = workbook({"Long": [[number, number] for number in range(100)], "More": [["never read"]]})
    text = extract_document(XLSX, data, limits=ExtractLimits(max_cells=20)).text
    assert "9 | 9\n(the remaining rows were skipped)" in text
    assert "10 | 10" not in text
    assert "never read" not in text


def test_a_sheet_that_lies_about_its_size_costs_nothing() -> None:
    def lying(xml: bytes) -> bytes:
        assert b'ref="A1:B1"' in xml
        return xml.replace(b'ref="A1:B1"', b'ref="A1:XFD1048576"')

    data = with_parts(small_workbook(), {"xl/worksheets/sheet1.xml": lying})
    assert extract_document(XLSX, data, limits=ExtractLimits(max_cells=2)).text == "## Sheet\n\na | b\n"


@pytest.mark.parametrize(("form", "build", "part"), MAIN_PARTS)
def test_entities_that_explode_are_refused(form: DocumentFormat, build: Callable[[], bytes], part: str) -> None:
    data = with_parts(build(), {part: with_entity_bomb})
    tracemalloc.start()
    try:
        with pytest.raises(ExtractFailed, match="entities"):
            extract_document(form, data)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_entities_hidden_in_another_encoding_are_refused() -> None:
    def hidden(xml: bytes) -> bytes:
        return with_entity_bomb(xml).decode().encode("utf-16")

    with pytest.raises(ExtractFailed, match="entities"):
        extract_document(DOCX, with_parts(word_document(), {"word/document.xml": hidden}))


@pytest.mark.parametrize(("form", "build", "part"), MAIN_PARTS)
def test_a_part_that_unpacks_to_far_more_than_the_file_is_refused(
    form: DocumentFormat, build: Callable[[], bytes], part: str
) -> None:
    data = with_parts(build(), {part: lambda xml: xml + b" " * 20_000_000})
    assert len(data) < 100_000
    with pytest.raises(ExtractFailed, match="unpacks"):
        extract_document(form, data)


@pytest.mark.parametrize(("form", "build", "part"), MAIN_PARTS)
def test_a_zip_that_declares_less_than_it_holds_is_refused(
    form: DocumentFormat, build: Callable[[], bytes], part: str
) -> None:
    data = bytearray(with_parts(build(), {part: lambda xml: xml + b" " * 20_000_000}))
    name = part.encode()
    entry = data.rindex(b"PK\x01\x02", 0, data.rindex(name))
    struct.pack_into("<I", data, entry + 24, 1000)  # the uncompressed size in the central directory
    with pytest.raises(ExtractFailed):
        extract_document(form, bytes(data))


def test_more_parts_than_any_document_has_are_refused() -> None:
    data = with_parts(word_document(), {f"word/media/{number}": b"" for number in range(200)})
    with pytest.raises(ExtractFailed, match="parts"):
        extract_document(DOCX, data, limits=ExtractLimits(max_parts=100))


def test_what_is_read_counts_even_when_the_sum_declared_is_small() -> None:
    with pytest.raises(ExtractFailed, match="unpacks"):
        extract_document(DOCX, word_document(), limits=ExtractLimits(max_part_bytes=100))


def test_paragraphs_nested_without_end_are_refused() -> None:
    def nested(xml: bytes) -> bytes:
        return xml.replace(b"</w:body>", b"<w:sdt>" * 50_000 + b"</w:sdt>" * 50_000 + b"</w:body>")

    with pytest.raises(ExtractFailed, match="nested"):
        extract_document(DOCX, with_parts(word_document(), {"word/document.xml": nested}))


@pytest.mark.parametrize("form", [DOCX, PPTX, XLSX])
def test_a_document_under_a_password_fails_and_says_so(form: DocumentFormat) -> None:
    with pytest.raises(ExtractFailed, match="password"):
        extract_document(form, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600)


@pytest.mark.parametrize(("form", "build", "part"), MAIN_PARTS)
@pytest.mark.parametrize("cut", [0, 10, 500, -30])
def test_a_truncated_document_fails(form: DocumentFormat, build: Callable[[], bytes], part: str, cut: int) -> None:
    with pytest.raises(ExtractFailed) as failed:
        extract_document(form, build()[:cut])
    assert "/" not in failed.value.message


def test_real_documents_are_classified_by_their_first_bytes() -> None:
    for form, build in ((DOCX, word_document), (PPTX, presentation), (XLSX, small_workbook)):
        assert classify(f"a.{form.name}", build()[:4096]) == form


def test_without_the_office_packages_the_failure_tells_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    data, real_import = small_workbook(), builtins.__import__

    def import_without_openpyxl(name: str, *args: object, **kwargs: object) -> object:
        if name.split(".")[0] == "openpyxl":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)  # type: ignore[arg-type]

    for module in [name for name in sys.modules if name.split(".")[0] == "openpyxl"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", import_without_openpyxl)
    with pytest.raises(ExtractFailed) as failed:
        extract_document(XLSX, data)
    assert failed.value.hint == "pip install 'armarium[office]'"
