"""Books are extracted in reading order, messages with their headers; hostile files are rejected."""

from __future__ import annotations

import tracemalloc
from email.message import EmailMessage

import pytest

from armarium.retrieval.chunks import ExtractLimits
from armarium.retrieval.document_types import DocumentFormat, classify
from armarium.retrieval.errors import ExtractFailed
from armarium.retrieval.extractors.document import extract_document
from support.office_documents import book, with_entity_bomb, with_parts

EPUB, EML, MBOX = DocumentFormat("epub", "epub"), DocumentFormat("email", "eml"), DocumentFormat("email", "mbox")


def test_a_book_is_read_in_the_order_of_its_spine() -> None:
    data = book({"b": "<h1>Second</h1><p>later</p>", "a": "<h1>First</h1><p>sooner</p>"}, spine=["a", "b"])
    result = extract_document(EPUB, data)
    assert result.text == "# First\n\nsooner\n\n# Second\n\nlater\n"
    assert (result.title, result.structure, result.source_lines) == ("A small book", "markdown", None)
    assert classify("a.epub", data[:4096]) == EPUB


def test_a_chapter_named_many_times_is_read_once() -> None:
    assert extract_document(EPUB, book({"a": "<p>once</p>"}, spine=["a"] * 1000)).text == "once\n"


def test_a_chapter_that_is_missing_is_passed_over() -> None:
    assert extract_document(EPUB, book({"a": "<p>here</p>"}, spine=["gone", "a"])).text == "here\n"


def test_an_encrypted_book_fails_with_that_reason() -> None:
    lock = "<encryption><CipherData><CipherReference URI='OPS/text/a.xhtml'/></CipherData></encryption>"
    with pytest.raises(ExtractFailed, match="encrypted"):
        extract_document(EPUB, book({"a": "<p>x</p>"}, extra={"META-INF/encryption.xml": lock}))


def test_a_book_with_obfuscated_fonts_is_read() -> None:
    fonts = "<encryption><CipherReference URI='OPS/font.otf'/></encryption>"
    assert extract_document(EPUB, book({"a": "<p>x</p>"}, extra={"META-INF/encryption.xml": fonts})).text == "x\n"


@pytest.mark.parametrize("part", ["META-INF/container.xml", "OPS/book.opf"])
def test_a_book_whose_entities_explode_is_refused(part: str) -> None:
    with pytest.raises(ExtractFailed, match="entities"):
        extract_document(EPUB, with_parts(book({"a": "<p>x</p>"}), {part: with_entity_bomb}))


def test_a_book_that_unpacks_to_far_more_than_its_size_is_refused() -> None:
    data = book({"a": "<p>" + "x " * 10_000_000})
    assert len(data) < 100_000
    with pytest.raises(ExtractFailed, match="unpacks"):
        extract_document(EPUB, data)


def test_all_chapters_together_count_against_the_limit() -> None:
    data = book({f"c{number}": f"<p>{number} {'words ' * 50}</p>" for number in range(50)})
    with pytest.raises(ExtractFailed, match="unpacks"):
        extract_document(EPUB, data, limits=ExtractLimits(max_unpacked_bytes=10_000))


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"words", book({})[:-40]])
def test_what_is_no_book_fails(data: bytes) -> None:
    with pytest.raises(ExtractFailed):
        extract_document(EPUB, data)


def message(
    subject: str = "Grüße aus Köln", text: str | None = "Hello,\nthe text.\n", html: str | None = None
) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = subject, "Jörg <joerg@example.com>", "you@example.com"
    mail["Date"] = "Mon, 06 May 2024 10:00:00 +0000"
    if text is not None:
        mail.set_content(text)
    if html is not None:
        (mail.add_alternative if text is not None else mail.set_content)(html, subtype="html")
    return mail


def test_a_message_has_its_headers_its_text_and_the_names_of_its_attachments() -> None:
    mail = message(html="<p>Not this one.</p>")
    mail.add_attachment(b"\0\1", maintype="application", subtype="pdf", filename="Angebot März.pdf")
    result = extract_document(EML, mail.as_bytes())
    assert result.text == (
        "# Grüße aus Köln\n\nFrom: Jörg <joerg@example.com>\nTo: you@example.com\n"
        "Date: Mon, 06 May 2024 10:00:00 +0000\n\nHello,\nthe text.\n\nAttachments: Angebot März.pdf\n"
    )
    assert (result.title, result.structure) == ("Grüße aus Köln", "markdown")


def test_the_text_of_attachments_that_are_text_is_read_and_of_others_only_the_name() -> None:
    mail = message()
    mail.add_attachment("ship;tons\nAurora;1200\n", subtype="csv", filename="ships.csv")
    mail.add_attachment("<h3>Tides</h3><p>High &amp; low.</p>", subtype="html", filename="tides.html")
    mail.add_attachment("*Fog* at seven.\n", subtype="markdown", filename="fog.md")
    mail.add_attachment("Grüße vom Anhang\n", filename="gruß.txt", charset="latin-1")
    mail.add_attachment(b"words in a program", maintype="application", subtype="octet-stream", filename="a.bin")
    mail.add_attachment(b"\0\1 no words", maintype="text", subtype="plain", filename="liar.txt")
    assert extract_document(EML, mail.as_bytes()).text.partition("the text.\n\n")[2] == (
        "Attachments: ships.csv, tides.html, fog.md, gruß.txt, a.bin, liar.txt\n\n"
        "## ships.csv\n\nship;tons\nAurora;1200\n\n## tides.html\n\n### Tides\n\nHigh & low.\n\n"
        "## fog.md\n\n*Fog* at seven.\n\n## gruß.txt\n\nGrüße vom Anhang\n"
    )


def test_an_attachment_alone_is_not_taken_for_the_text_of_the_message() -> None:
    mail = message(text=None, html="<p>The letter.</p>")
    mail.add_attachment("The note.\n", filename="note.txt")
    text = extract_document(EML, mail.as_bytes()).text
    assert text.index("The letter.") < text.index("Attachments: note.txt") < text.index("## note.txt\n\nThe note.")


def test_a_message_without_a_plain_text_is_read_from_its_html() -> None:
    text = extract_document(EML, message(text=None, html="<h2>Offer</h2><p>Only today.</p>").as_bytes()).text
    assert text.endswith("\n\n## Offer\n\nOnly today.\n")


def test_a_message_that_lies_about_its_encoding_is_read() -> None:
    raw = b"Subject: x\r\nContent-Type: text/plain; charset=no-such-thing\r\n\r\n" + "schöne Grüße".encode()
    assert extract_document(EML, raw).text.endswith("schöne Grüße\n")


def test_headers_in_raw_bytes_are_read() -> None:
    raw = "Subject: schöne Grüße\nFrom: Jörg\n\nbody".encode()
    assert extract_document(EML, raw).text == "# schöne Grüße\n\nFrom: Jörg\n\nbody\n"
    assert extract_document(EML, raw.decode().encode("latin-1")).title == "schöne Grüße"


@pytest.mark.parametrize(
    "header",
    [
        "Subject: " + "=?utf-8?b?aGFoYQ==?= " * 20_000,
        "Subject: x\nTo: " + "a@example.com, " * 20_000,
        "Subject: x\nContent-Disposition: inline" + "; a*0=b" * 20_000,
    ],
)
def test_a_header_without_end_costs_little_memory(header: str) -> None:
    tracemalloc.start()
    try:
        assert extract_document(EML, f"{header}\n\nbody".encode()).text.endswith("body\n")
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


def test_a_mailbox_holds_its_messages_one_after_the_other() -> None:
    first, second = message("One", "first\n>From the sea\n"), message("Two", "second\n")
    raw = b"".join(
        b"From me@example.com Mon May  6 10:00:00 2024\n" + mail.as_bytes() + b"\n" for mail in (first, second)
    )
    text = extract_document(MBOX, raw).text
    assert text.index("# One") < text.index("first\nFrom the sea") < text.index("# Two") < text.index("second")
    assert "# Two" not in extract_document(MBOX, raw, limits=ExtractLimits(max_messages=1)).text


@pytest.mark.parametrize("form", [EML, MBOX])
@pytest.mark.parametrize("data", [b"", b"just some words\nand more"])
def test_what_is_no_message_fails(form: DocumentFormat, data: bytes) -> None:
    with pytest.raises(ExtractFailed):
        extract_document(form, data)
