"""Pages of PDFs: their pictures and the places of quotes, over real HTTP, and what a hostile file can do."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx
import pypdfium2
import pytest
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

from armarium.capabilities.corpus.errors import ExtractFailed
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.capabilities.corpus.ingest.page_workers import OpenPdf, PageWorkers, page_worker_setup
from armarium.capabilities.corpus.ingest.worker_process import WorkerProcess
from armarium.retrieval.extractors.pdf_pages import draw_page, place_quote
from support.api_server import ApiServer, api_server, until_indexed
from support.waiting import eventually

Json = dict[str, Any]
LINES = ["The lamp is lit at dusk by the keeper.", "In fog the horn sounds every two min-", "utes until noon."]
SECOND = ["The supply boat comes on Mondays.", "Its captain is called Jonas."]
RED = (255, 0, 0)


def document(*pages: list[str]) -> bytes:
    """A PDF with these lines, and a red square of 100 points in the lower left corner of each page."""
    target = io.BytesIO()
    canvas = Canvas(target, pagesize=A4)
    for lines in pages:
        canvas.setFillColorRGB(1, 0, 0)
        canvas.rect(0, 0, 100, 100, stroke=0, fill=1)
        canvas.setFillColorRGB(0, 0, 0)
        for number, line in enumerate(lines):
            canvas.drawString(60, 760 - 14 * number, line)
        canvas.showPage()
    canvas.save()
    return target.getvalue()


class Picture:
    """A PNG as a program reads it that trusts nothing in it."""

    def __init__(self, png: bytes) -> None:
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        chunks: dict[bytes, bytes] = {}
        place = 8
        while place < len(png):
            (length,) = struct.unpack(">I", png[place : place + 4])
            kind, content = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
            assert struct.unpack(">I", png[place + 8 + length : place + 12 + length])[0] == zlib.crc32(kind + content)
            chunks[kind] = content
            place += 12 + length
        assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
        self.width, self.height, *form = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
        assert form == [8, 2, 0, 0, 0]
        self._row = 1 + 3 * self.width
        self._pixels = zlib.decompress(chunks[b"IDAT"])
        assert len(self._pixels) == self.height * self._row

    def color_at(self, x: float, y: float) -> tuple[int, ...]:
        """The colour at shares of the width and height."""
        start = int(y * self.height) * self._row + 1 + 3 * int(x * self.width)
        return tuple(self._pixels[start : start + 3])

    def has_ink(self, box: Json) -> bool:
        """Whether anything is dark inside a rectangle."""
        top, bottom = int(box["top"] * self.height), int((box["top"] + box["height"]) * self.height)
        left, right = int(box["left"] * self.width), int((box["left"] + box["width"]) * self.width)
        return any(
            min(self._pixels[y * self._row + 1 + 3 * left : y * self._row + 1 + 3 * right]) < 100
            for y in range(top, max(bottom, top + 1))
        )


@pytest.fixture
async def served(tmp_path: Path) -> AsyncGenerator[ApiServer]:
    root = tmp_path / "docs"
    root.mkdir()
    (root / "report.pdf").write_bytes(document(LINES, SECOND))
    (root / "secret.pdf").write_bytes(document(["aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzKEY1"]))
    (root / "broken.pdf").write_bytes(b"%PDF-1.4 and then nothing")
    (root / "notes.md").write_text("Nothing to see.\n")
    with zipfile.ZipFile(root / "old.zip", "w") as archive:
        archive.writestr("letters/first.pdf", document(SECOND))
    corpus = {"root": str(root), "groups": ["users"], "ingest": {"watch": False}}
    async with api_server(tmp_path, corpus=corpus) as server, server.client() as http:
        await until_indexed(http)
        yield server


@pytest.fixture
async def http(served: ApiServer) -> AsyncGenerator[httpx.AsyncClient]:
    async with served.client() as client:
        yield client


async def picture(http: httpx.AsyncClient, **query: Any) -> Picture:
    answer = await http.get("/corpus/page", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    return Picture(answer.content)


async def boxes(http: httpx.AsyncClient, **query: Any) -> Json:
    answer = await http.get("/corpus/page-boxes", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_citation_opens_its_page_with_the_quote(http: httpx.AsyncClient, served: ApiServer) -> None:
    hits = (await http.get("/corpus/search", params={"query": "how often does the horn sound", "k": 1})).json()["hits"]
    hit = hits[0]
    assert (hit["rel_path"], hit["span"]) == ("report.pdf", {"kind": "page", "page": 1})
    page = await picture(http, rel_path="report.pdf", page=1, width=600)
    assert (page.width, page.height) == (600, pytest.approx(849, abs=2))
    assert page.color_at(0.05, 0.97) == RED
    assert page.color_at(0.9, 0.05) == (255, 255, 255)
    placed = await boxes(http, rel_path="report.pdf", chunk_id=hit["chunk_id"])
    assert (placed["page"], placed["pages"], placed["found"]) == (1, 2, 1.0)
    assert (round(placed["width_points"]), round(placed["height_points"])) == (595, 842)
    assert len(placed["boxes"]) == len(LINES)
    assert all(page.has_ink(box) for box in placed["boxes"])
    tops = [box["top"] for box in placed["boxes"]]
    assert tops == sorted(tops)
    assert all(0.08 < top < 0.14 for top in tops)
    await eventually(lambda: served.calls("corpus_page"))
    (record,) = served.calls("corpus_page")
    assert (record.path, record.outcome) == ("report.pdf", "success")


async def test_a_part_of_a_line_is_placed_by_its_text_and_not_recorded(
    http: httpx.AsyncClient, served: ApiServer
) -> None:
    text = "captain is called"
    placed = await boxes(http, rel_path="report.pdf", page=2, text=text)
    (box,) = placed["boxes"]
    assert 0.1 < box["left"] < 0.3
    assert box["width"] < 0.25
    assert (await boxes(http, rel_path="report.pdf", page=1, text="nowhere at all"))["boxes"] == []
    await eventually(lambda: len(served.calls("corpus_page_boxes")) == 2)
    assert all(text not in record.arguments for record in served.calls("corpus_page_boxes"))


async def test_a_pdf_in_an_archive_has_pages_too(http: httpx.AsyncClient) -> None:
    files = (await http.get("/corpus/files", params={"path_prefix": "old.zip"})).json()["files"]
    path = next(file["rel_path"] for file in files if file["doc_type"] == "pdf")
    assert (await picture(http, rel_path=path, width=300)).width == 300
    assert (await boxes(http, rel_path=path, page=1, text=SECOND[0]))["found"] == 1.0


REFUSED: list[tuple[str, Json, int, str]] = [
    ("/corpus/page", {"rel_path": "report.pdf", "page": 3}, 400, "INVALID_RANGE"),
    ("/corpus/page", {"rel_path": "report.pdf", "width": 9000}, 400, "INVALID_RANGE"),
    ("/corpus/page", {"rel_path": "absent.pdf"}, 404, "FILE_NOT_FOUND"),
    ("/corpus/page", {"rel_path": "../report.pdf"}, 403, "PATH_OUTSIDE_ROOT"),
    ("/corpus/page", {"rel_path": "secret.pdf"}, 403, "FORBIDDEN"),
    ("/corpus/page", {"rel_path": "broken.pdf"}, 422, "EXTRACT_FAILED"),
    ("/corpus/page", {"rel_path": "notes.md"}, 422, "DOC_TYPE_UNSUPPORTED"),
    ("/corpus/page-boxes", {"rel_path": "report.pdf"}, 400, "INVALID_FIELD"),
    ("/corpus/page-boxes", {"rel_path": "report.pdf", "page": 1}, 400, "INVALID_FIELD"),
    ("/corpus/page-boxes", {"rel_path": "report.pdf", "chunk_id": 10**9}, 400, "INVALID_FIELD"),
]


async def test_what_may_not_or_cannot_be_shown_is_refused(
    http: httpx.AsyncClient, served: ApiServer, tmp_path: Path
) -> None:
    for path, query, status, code in REFUSED:
        answer = await http.get(path, params=query)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), (path, query)
        assert str(tmp_path) not in answer.text
    async with served.client("guest") as guest:
        for path in ("/corpus/page", "/corpus/page-boxes"):
            assert (await guest.get(path, params={"rel_path": "report.pdf", "page": 1})).status_code == 403


async def test_a_page_is_drawn_once_and_not_shown_after_its_file_changed(
    http: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Json] = []
    answer = WorkerProcess.answer

    def counted(self: WorkerProcess, request: Json, *more: Any) -> Any:
        asked.append(request)
        return answer(self, request, *more)

    monkeypatch.setattr(WorkerProcess, "answer", counted)
    for _ in range(3):
        await picture(http, rel_path="report.pdf", width=200)
    assert len(asked) == 1
    (tmp_path / "docs/report.pdf").write_bytes(document(["something else"]))
    changed = await http.get("/corpus/page", params={"rel_path": "report.pdf", "width": 200})
    assert (changed.status_code, changed.json()["error"]["code"]) == (503, "INDEX_NOT_READY")


def test_a_rotated_page_has_its_boxes_where_the_words_are_seen() -> None:
    target = io.BytesIO()
    with pypdfium2.PdfDocument(document(LINES)) as upright:
        upright[0].set_rotation(90)
        upright.save(target)
    data = target.getvalue()
    drawn = draw_page(data, 1, 800)
    assert drawn.width > drawn.height
    placed = place_quote(data, 1, LINES[0])
    (box,) = placed.boxes
    assert placed.width_points > placed.height_points
    # What is at the top of an upright page is at the right side of this one.
    assert box[0] > 0.85
    assert box[3] - box[1] > box[2] - box[0]


def test_a_page_that_is_very_high_is_drawn_narrower() -> None:
    target = io.BytesIO()
    canvas = Canvas(target, pagesize=(100, 14_000))
    canvas.drawString(10, 10, "the bottom")
    canvas.showPage()
    canvas.save()
    drawn = draw_page(target.getvalue(), 1, 3000)
    assert drawn.width * drawn.height <= 16_000_000
    assert drawn.width < 300


ANSWERS: list[Callable[[Json], Any]] = [
    lambda honest: None,
    lambda honest: [honest],
    lambda honest: {},
    lambda honest: honest | {"width": 10**6},
    lambda honest: honest | {"height": honest["height"] + 1},
    lambda honest: honest | {"pages": "2"},
    lambda honest: honest | {"pixels": "not base64!"},
    lambda honest: honest | {"pixels": "AAAA"},
    lambda honest: honest | {"pixels": honest["pixels"][:-8]},
    lambda honest: {"error": "FORBIDDEN"},
    lambda honest: {"error": ["FORBIDDEN", "a hostile text"]},
    lambda honest: {"error": [1, 2]},
]


@pytest.mark.parametrize("lie", ANSWERS)
def test_a_worker_that_was_taken_over_cannot_make_the_server_believe_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: Callable[[Json], Any]
) -> None:
    file = tmp_path / "a.pdf"
    file.write_bytes(document(LINES))
    workers = PageWorkers(page_worker_setup(Instructions((), ()), "auto"))
    answer = WorkerProcess.answer
    killed: list[WorkerProcess] = []
    kill = WorkerProcess.kill
    monkeypatch.setattr(WorkerProcess, "answer", lambda self, *request: lie(answer(self, *request)))
    monkeypatch.setattr(WorkerProcess, "kill", lambda self: (killed.append(self), kill(self)))
    fd = os.open(file, os.O_RDONLY)
    try:
        with pytest.raises(ExtractFailed, match="the page cannot be shown"):
            workers.draw(OpenPdf(fd, file.stat().st_size, ""), 1, 100)
    finally:
        os.close(fd)
        workers.close()
    assert len(killed) == 1


async def test_workers_that_are_not_used_end(tmp_path: Path) -> None:
    file = tmp_path / "a.pdf"
    file.write_bytes(document(LINES))
    workers = PageWorkers(page_worker_setup(Instructions((), ()), "auto"))
    fd = os.open(file, os.O_RDONLY)
    try:
        pdf = OpenPdf(fd, file.stat().st_size, "")
        drawn = [await anyio.to_thread.run_sync(workers.draw, pdf, 1, width) for width in (100, 200)]
        assert [each.width for each in drawn] == [100, 200]
        assert workers.processes == 1
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(workers.end_idle, 0.01)
            await eventually(lambda: workers.processes == 0, what="the process ends")
            tasks.cancel_scope.cancel()
    finally:
        os.close(fd)
        workers.close()
