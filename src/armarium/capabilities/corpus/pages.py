"""Shows pages of PDFs: pictures from isolated processes, kept for a while, and where quotes are on them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.errors import InvalidField
from armarium.capabilities.corpus.ingest.page_workers import AT_ONCE, OpenPdf, PagePicture, PageWorkers
from armarium.capabilities.corpus.query.slices import PdfFile, SliceReader
from armarium.retrieval.extractors.pdf_pages import PlacedQuote
from armarium.retrieval.spans import PageSpan

_CACHE_BYTES: Final = 16 * 1024 * 1024

_Key = tuple[str, int, int, int, int]


class _Pictures:
    """The pictures shown last, up to a number of bytes. Used in the event loop only."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._by_key: OrderedDict[_Key, PagePicture] = OrderedDict()

    def get(self, key: _Key) -> PagePicture | None:
        if (found := self._by_key.get(key)) is not None:
            self._by_key.move_to_end(key)
        return found

    def put(self, key: _Key, picture: PagePicture) -> None:
        if key in self._by_key or len(picture.png) > self._max_bytes:
            return
        self._by_key[key] = picture
        self._bytes += len(picture.png)
        while self._bytes > self._max_bytes:
            _, oldest = self._by_key.popitem(last=False)
            self._bytes -= len(oldest.png)


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of the PDFs of one corpus."""

    slices: SliceReader
    workers: PageWorkers
    _pictures: _Pictures = field(default_factory=lambda: _Pictures(_CACHE_BYTES))
    _turns: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(AT_ONCE))

    async def picture(self, rel_path: str, page: int, width: int) -> PagePicture:
        """A page as an image, at most `width` pixels wide."""

        def look_up() -> _Key:
            # Every time: what may be shown is decided now.
            with self.slices.opened_pdf(rel_path) as pdf:
                return _key(pdf)

        def _key(pdf: PdfFile) -> _Key:
            return pdf.rel_path, pdf.size_bytes, pdf.mtime_ns, page, width

        def draw() -> tuple[_Key, PagePicture]:
            with self.slices.opened_pdf(rel_path) as pdf:
                return _key(pdf), self.workers.draw(OpenPdf(pdf.fd, pdf.size_bytes, pdf.member), page, width)

        if (kept := self._pictures.get(await run_sync(look_up))) is not None:
            return kept
        key, picture = await run_sync(draw, limiter=self._turns)
        self._pictures.put(key, picture)
        return picture

    async def place(
        self, rel_path: str, page: int | None, chunk_id: int | None, text: str | None
    ) -> tuple[int, PlacedQuote]:
        """The number of the page, and the rectangles of a chunk or of a text on it."""

        def place() -> tuple[int, PlacedQuote]:
            with self.slices.opened_pdf(rel_path) as pdf:
                quote, on_page = text, page
                if chunk_id is not None:
                    chunk = self.slices.chunk_of(pdf.rel_path, chunk_id)
                    quote = chunk.text
                    if on_page is None and isinstance(chunk.span, PageSpan):
                        on_page = chunk.span.number
                if quote is None or on_page is None:
                    raise InvalidField("a quote is a `chunk_id`, or a `page` and a `text`")
                placed = self.workers.place(OpenPdf(pdf.fd, pdf.size_bytes, pdf.member), on_page, quote)
                return on_page, placed

        return await run_sync(place, limiter=self._turns)
