"""For any bytes, extraction returns text that can be stored or raises `ExtractFailed`."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armarium.retrieval.chunks import ExtractedText
from armarium.retrieval.document_types import DocType, DocumentFormat, classify
from armarium.retrieval.errors import ExtractFailed
from armarium.retrieval.extractors.document import extract_document
from support.office_documents import book, presentation, word_document, workbook

WITH_TEXT = {"code", "text", "md", "data", "html", "pdf", "word", "slides", "sheet", "epub", "email"}
NAMES = {"pdf": "pdf", "word": "docx", "slides": "pptx", "sheet": "xlsx", "epub": "epub"}
FORMS = [
    *(DocumentFormat(doc_type, NAMES.get(doc_type, "text")) for doc_type in get_args(DocType)),
    DocumentFormat("data", "ipynb"),
    DocumentFormat("email", "mbox"),
]
BEGINNINGS = st.sampled_from(
    [b"", b"%PDF-1.4\n", b"PK\x03\x04", b"From a\nSubject: b\n", b"Content-Type: text/html\n\n<p>", b"{"]
)


def outcome(form: DocumentFormat, data: bytes) -> ExtractedText | ExtractFailed:
    try:
        return extract_document(form, data)
    except ExtractFailed as failed:
        return failed


def well_formed(result: ExtractedText) -> None:
    result.text.encode()
    assert "\r" not in result.text
    assert "\0" not in result.text
    if result.source_lines is not None:
        assert len(result.source_lines) == len(result.text.split("\n"))
    if result.page_starts is not None:
        starts = list(result.page_starts)
        assert starts[0] == 0
        assert starts == sorted(starts)
        assert starts[-1] <= len(result.text)


@given(st.sampled_from(FORMS), BEGINNINGS, st.binary(max_size=300))
def test_arbitrary_bytes_give_text_or_extract_failed_in_every_format(
    form: DocumentFormat, beginning: bytes, rest: bytes
) -> None:
    result = outcome(form, beginning + rest)
    if isinstance(result, ExtractFailed):
        assert form.doc_type not in {"code", "text", "md", "html"}
    else:
        assert form.doc_type in WITH_TEXT
        well_formed(result)


DOCUMENTS: dict[str, Callable[[], bytes]] = {
    "docx": word_document,
    "pptx": presentation,
    "xlsx": lambda: workbook({"One": [["a", 1], ["b", 2]]}),
    "epub": lambda: book({"a": "<h1>One</h1><p>text</p>"}),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_damaged_document_gives_text_or_extract_failed(name: str) -> None:
    whole = DOCUMENTS[name]()
    form = classify(f"a.{name}", whole[:4096])

    @settings(max_examples=60)
    @given(st.integers(0, len(whole) - 1), st.binary(min_size=1, max_size=40))
    def damaged(position: int, damage: bytes) -> None:
        result = outcome(form, whole[:position] + damage + whole[position + len(damage) :])
        if isinstance(result, ExtractFailed):
            assert len(result.message) < 100
        else:
            well_formed(result)

    damaged()


HEADERS = st.sampled_from(
    ["Subject", "From", "Date", "To", "Content-Type", "Content-Transfer-Encoding", "Content-Disposition"]
)
VALUES = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "multipart/mixed; boundary=b",
            "text/html; charset=utf-7",
            "=?utf-8?b?//8?=",
            "base64",
            "attachment; filename*=x''%ff",
            "@<,",
        ]
    ),
)


@given(st.lists(st.tuples(HEADERS, VALUES), min_size=1, max_size=6), st.text(max_size=100))
def test_messages_with_any_headers_are_read(headers: list[tuple[str, str]], body: str) -> None:
    raw = "".join(f"{name}: {value}\n" for name, value in headers) + f"\n--b\n{body}\n--b--\n"
    result = outcome(DocumentFormat("email", "eml"), raw.encode())
    assert isinstance(result, ExtractedText)
    well_formed(result)


@pytest.mark.parametrize("name", ["a.txt", "a.json", "a.html", "a.md"])
def test_a_very_long_single_line_is_read(name: str) -> None:
    data = b"word " * 1_000_000
    assert len(extract_document(classify(name, data[:4096]), data).text) >= 4_999_999


def test_failures_tell_nothing_of_the_machine_or_the_content() -> None:
    with pytest.raises(ExtractFailed) as failed:
        extract_document(DocumentFormat("word", "docx"), b"PK\x03\x04 my secret content")
    told = failed.value.message + str(failed.value.hint) + str(failed.value.details)
    assert "secret" not in told
    assert "/" not in told
