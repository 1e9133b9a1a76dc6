"""Every format through the real server: the content is found, and what is cited can be opened."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import AsyncGenerator, Callable, Generator
from email.message import EmailMessage

import docx
import openpyxl
import pptx
import pytest
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

from support.client import ToolClient, connected
from support.corpus import CorpusProcess
from support.corpus_calls import WITHOUT_WATCHING, Json, answer, hits, opened_at, refusal, shown_part

HTML = """\
<!doctype html>
<html><head><title>Zanzibar clove auctions</title>
<script>var hidden = "quokka";</script></head>
<body>
<h1>Prices</h1>
<p>Bales are weighed on the wharf
before the bidding opens.</p>
</body></html>
"""


def saved(save: Callable[[io.BytesIO], object]) -> bytes:
    target = io.BytesIO()
    save(target)
    return target.getvalue()


def pdf() -> bytes:
    """Three pages; the second has two columns, drawn line by line across both."""
    target = io.BytesIO()
    canvas = Canvas(target, pagesize=A4)
    canvas.drawString(60, 760, "The aqueduct crosses the valley on forty arches.")
    canvas.showPage()
    left = ["Granite blocks were hauled by oxen from", "the northern quarry every spring."] + [
        f"The oxen of team {number} rested at milestone" for number in range(20)
    ]
    right = ["The mortar was mixed with volcanic ash", "so that it hardens under water."] + [
        f"Barrel {number} of ash came over the harbour" for number in range(20)
    ]
    for row, (first, second) in enumerate(zip(left, right, strict=True)):
        canvas.drawString(60, 740 - 14 * row, first)
        canvas.drawString(320, 740 - 14 * row, second)
    canvas.showPage()
    canvas.drawString(60, 760, "Maintenance crews walk the channel each autumn.")
    canvas.showPage()
    canvas.save()
    return target.getvalue()


def presentation() -> bytes:
    deck = pptx.Presentation()
    for title, body in (
        ("Harvest", "Olives are shaken from the trees."),
        ("Pressing", "Stone mills crush the drupes."),
    ):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text_frame.text = body
    return saved(deck.save)


def word() -> bytes:
    document = docx.Document()
    document.add_heading("Beekeeping", level=1)
    for number in range(60):
        document.add_paragraph(f"Entry {number}: the hive stood still while it rained on the orchard.")
    document.add_heading("Swarms", level=2)
    document.add_paragraph("A swarm is caught in a straw skep at noon.")
    return saved(document.save)


def workbook() -> bytes:
    book = openpyxl.Workbook()
    book.active.title = "Ferries"
    book.active.append(["Vessel", "Berth"])
    book.active.append(["Kittiwake", "North pier"])
    return saved(book.save)


def zipped(parts: dict[str, str | bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return target.getvalue()


def book() -> bytes:
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="book.opf"/></rootfiles></container>',
            "book.opf": '<package xmlns="http://www.idpf.org/2007/opf"><metadata/><manifest>'
            '<item id="one" href="one.xhtml" media-type="application/xhtml+xml"/></manifest>'
            '<spine><itemref idref="one"/></spine></package>',
            "one.xhtml": "<html><body><h1>Glaciers</h1><p>Moraines mark where the ice halted.</p></body></html>",
        }
    )


def mail() -> bytes:
    message = EmailMessage()
    message["Subject"] = "Regatta postponed"
    message["From"] = "warden@example.org"
    message.set_content("The regatta waits until the gale has blown out.\n")
    return message.as_bytes()


def notebook() -> bytes:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Tide model\n", "Fits lunar harmonics."]},
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": ["fit_harmonics(m2)"]},
    ]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}).encode()


def tarred(parts: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in parts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


FILES: dict[str, Callable[[], bytes]] = {
    "aqueduct.pdf": pdf,
    "olives.pptx": presentation,
    "bees.docx": word,
    "ferries.xlsx": workbook,
    "ice.epub": book,
    "regatta.eml": mail,
    "tides.ipynb": notebook,
    "cloves.html": HTML.encode,
    "rations.csv": lambda: b"item,weight\nhardtack,12\npemmican,7\n" + b"salt,1\n" * 5,
    "utf16.txt": lambda: "Der Müller mahlt Roggen.\nDie Mühle klappert.\n".encode("utf-16"),
    "cp1252.txt": lambda: "Le forgeron bat l’enclume près du château.\nÇa résonne.\n".encode("cp1252"),
    "crlf.md": lambda: b"# Ropes\r\n\r\nHawsers are tarred.\r\n",
    "broken.docx": lambda: word()[:1500],
    "broken.pdf": lambda: b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\n",
    "crates.zip": lambda: zipped(
        {
            "inner/wool.md": "# Wool\n\nFleeces are graded by staple length.\n",
            "inner/page.html": HTML.replace("Zanzibar clove", "Marrakech saffron").replace("wharf", "rooftop"),
            "inner/aqueduct.pdf": pdf(),
            "nested.zip": zipped({"deep.txt": "Tweed is woven on Harris.\n"}),
        }
    ),
    "bundle.tar.gz": lambda: tarred({"notes/kelp.txt": b"Kelp is burned for potash.\n"}),
    "odd!/name.md": lambda: b"Puffins nest in burrows.\n",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[CorpusProcess]:
    directory = tmp_path_factory.mktemp("formats")
    for name, content in FILES.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(content())
    with CorpusProcess(directory, environ=WITHOUT_WATCHING) as process:
        process.wait_until_indexed()
        yield process


@pytest.fixture
async def corpus(served: CorpusProcess) -> AsyncGenerator[ToolClient]:
    async with connected(served.url, key=served.token) as client:
        yield client


async def found_in(corpus: ToolClient, rel_path: str, query: str) -> Json:
    """The first hit of a search in all files, which must be in this one."""
    best = (await hits(corpus, query, index="both", k=3))[0]
    assert best["rel_path"] == rel_path
    return best


@pytest.mark.parametrize(
    ("query", "page", "words"),
    [
        ("aqueduct on forty arches", 1, "crosses the valley on forty arches"),
        ("volcanic ash in mortar", 2, "volcanic ash"),
        ("crews walk the channel in autumn", 3, "Maintenance crews"),
    ],
)
async def test_a_pdf_is_found_and_opened_by_its_pages(corpus: ToolClient, query: str, page: int, words: str) -> None:
    found = await hits(corpus, query, file_glob="aqueduct.pdf")
    assert found[0]["doc_type"] == "pdf"
    assert found[0]["span"] == {"kind": "page", "page": page}
    assert words in found[0]["snippet"]
    opened = await answer(corpus, "open_file", rel_path="aqueduct.pdf", page=page)
    assert opened["span"] == {"kind": "page", "page": page}
    assert shown_part(found[0]) in opened["content"]
    assert not opened["truncated"]


async def test_the_columns_of_a_page_are_read_one_after_the_other(corpus: ToolClient) -> None:
    content = (await answer(corpus, "open_file", rel_path="aqueduct.pdf", page=2))["content"]
    words = " ".join(content.split())
    assert "Granite blocks were hauled by oxen from the northern quarry every spring." in words
    assert "mortar was mixed with volcanic ash so that it hardens under water." in words


async def test_a_paged_document_opens_at_its_first_page_and_has_no_more_than_it_has(corpus: ToolClient) -> None:
    for path, first in (("aqueduct.pdf", "forty arches"), ("olives.pptx", "Olives are shaken")):
        opened = await answer(corpus, "open_file", rel_path=path)
        assert opened["span"] == {"kind": "page", "page": 1}
        assert first in opened["content"]
        assert (await refusal(corpus, "open_file", rel_path=path, page=9))["code"] == "INVALID_RANGE"
        assert (await refusal(corpus, "open_file", rel_path=path, page=0))["code"] == "INVALID_RANGE"


async def test_slides_are_pages(corpus: ToolClient) -> None:
    best = await found_in(corpus, "olives.pptx", "stone mills crush drupes")
    assert best["span"] == {"kind": "page", "page": 2}
    assert shown_part(best) in await opened_at(corpus, best)


@pytest.mark.parametrize(
    ("rel_path", "query", "words"),
    [
        ("bees.docx", "swarm caught in a straw skep", "straw skep at noon"),
        ("ferries.xlsx", "Kittiwake north pier berth", "Kittiwake"),
        ("ice.epub", "moraines where the ice halted", "Moraines mark"),
        ("regatta.eml", "regatta waits for the gale", "gale has blown out"),
        ("tides.ipynb", "lunar harmonics tide model", "lunar harmonics"),
        ("rations.csv", "pemmican weight", "pemmican,7"),
        ("utf16.txt", "Müller mahlt Roggen", "Der Müller mahlt Roggen."),
        ("cp1252.txt", "forgeron enclume château", "l’enclume près du château"),
        ("crlf.md", "tarred hawsers", "Hawsers are tarred."),
        ("crates.zip!/inner/wool.md", "fleeces graded by staple length", "staple length"),
        ("crates.zip!/nested.zip!/deep.txt", "Tweed woven on Harris", "Tweed is woven"),
        ("bundle.tar.gz!/notes/kelp.txt", "kelp burned for potash", "Kelp is burned"),
        ("odd!/name.md", "puffins nest in burrows", "Puffins nest"),
    ],
)
async def test_what_a_document_says_is_found_and_its_lines_hold_the_snippet(
    corpus: ToolClient, rel_path: str, query: str, words: str
) -> None:
    best = await found_in(corpus, rel_path, query)
    assert best["span"]["kind"] == "lines"
    assert words in best["snippet"]
    assert shown_part(best) in await opened_at(corpus, best)


async def test_a_word_document_is_cited_by_the_lines_of_its_text(corpus: ToolClient) -> None:
    best = await found_in(corpus, "bees.docx", "swarm caught in a straw skep")
    assert best["span"]["start_line"] > 60
    opened = await answer(corpus, "open_file", rel_path="bees.docx", start_line=1, end_line=1)
    assert opened["content"] == "# Beekeeping"
    assert (await refusal(corpus, "open_file", rel_path="bees.docx", page=1))["code"] == "DOC_TYPE_UNSUPPORTED"


async def test_a_code_cell_is_found(corpus: ToolClient) -> None:
    best = await found_in(corpus, "tides.ipynb", "fit_harmonics(m2)")
    assert "fit_harmonics(m2)" in await opened_at(corpus, best)


@pytest.mark.parametrize(
    ("rel_path", "query", "line"),
    [
        ("cloves.html", "bales weighed on the wharf before bidding", "<p>Bales are weighed on the wharf"),
        ("crates.zip!/inner/page.html", "bales weighed on the rooftop", "Bales are weighed on the rooftop"),
    ],
)
async def test_a_page_is_cited_by_the_lines_that_hold_its_words(
    corpus: ToolClient, rel_path: str, query: str, line: str
) -> None:
    best = await found_in(corpus, rel_path, query)
    assert best["doc_type"] == "html"
    opened = await opened_at(corpus, best)
    assert line in opened
    words = [word.strip("#") for word in shown_part(best).split()]
    assert all(word in opened for word in words if word)


async def test_a_page_is_found_by_its_title_and_not_by_its_scripts(corpus: ToolClient) -> None:
    await found_in(corpus, "cloves.html", "Zanzibar clove auctions")
    assert all("quokka" not in hit["snippet"] for hit in await hits(corpus, "quokka", k=10))


async def test_a_pdf_in_an_archive_has_pages_too(corpus: ToolClient) -> None:
    found = await hits(corpus, "volcanic ash in mortar", path_prefix="crates.zip!/")
    assert found[0]["rel_path"] == "crates.zip!/inner/aqueduct.pdf"
    assert found[0]["span"] == {"kind": "page", "page": 2}
    assert "volcanic ash" in await opened_at(corpus, found[0])


@pytest.mark.parametrize("rel_path", ["broken.docx", "broken.pdf"])
async def test_a_broken_document_is_an_error_of_its_own(
    corpus: ToolClient, served: CorpusProcess, rel_path: str
) -> None:
    listed = (await answer(corpus, "list_files", glob=rel_path))["files"]
    assert [file["status"] for file in listed] == ["error"]
    told = served.wait_for("file_error", lambda data: data["rel_path"] == rel_path)
    assert told["level"] == "warn"
    assert told["data"]["code"] == "EXTRACT_FAILED"
    assert (await refusal(corpus, "open_file", rel_path=rel_path))["code"] == "EXTRACT_FAILED"


async def test_only_what_is_broken_is_counted_as_an_error(corpus: ToolClient) -> None:
    listed = (await answer(corpus, "list_files"))["files"]
    assert {file["rel_path"] for file in listed if file["status"] != "ok"} == {"broken.docx", "broken.pdf"}
    assert (await answer(corpus, "stats"))["indexing"]["errors"] == 2


async def test_an_archive_itself_has_no_text_and_a_member_it_lacks_is_not_found(corpus: ToolClient) -> None:
    assert (await refusal(corpus, "open_file", rel_path="crates.zip"))["code"] == "DOC_TYPE_UNSUPPORTED"
    missing = await refusal(corpus, "open_file", rel_path="crates.zip!/inner/linen.md")
    assert missing["code"] == "FILE_NOT_FOUND"
    outside = await refusal(corpus, "open_file", rel_path="crates.zip!/../../etc/passwd")
    assert outside["code"] in ("FILE_NOT_FOUND", "PATH_OUTSIDE_ROOT")
