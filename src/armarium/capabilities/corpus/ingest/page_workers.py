"""Asks isolated worker processes for pages of PDFs, and validates what they answer: a hostile file may control it."""

from __future__ import annotations

import base64
import binascii
import struct
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

import anyio

from armarium.capabilities.corpus.errors import ExtractFailed
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.capabilities.corpus.ingest.page_tasks import DRAW, PLACE, error_in
from armarium.capabilities.corpus.ingest.worker_process import (
    IsolationMode,
    TimeLimits,
    WorkerLost,
    WorkerProcess,
    WorkerSetup,
    worker_memory_bytes,
)
from armarium.foundation.schema import Json
from armarium.retrieval.extractors.pdf_pages import (
    BYTES_PER_PIXEL,
    MAX_BOXES,
    MAX_PIXELS,
    MAX_QUOTE,
    MAX_WIDTH,
    Box,
    PlacedQuote,
)

AT_ONCE: Final = 2
_IDLE_S: Final = 30.0
_LIMITS: Final = TimeLimits(cpu_s=10.0, cpu_s_per_megabyte=1.0)
_MAX_DRAWN_BYTES: Final = 2 * MAX_PIXELS * BYTES_PER_PIXEL
_MAX_PLACED_BYTES: Final = 200 * MAX_BOXES
_MAX_PAGES: Final = 1_000_000
_MAX_POINTS: Final = 1e6
_PNG: Final = b"\x89PNG\r\n\x1a\n"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenPdf:
    """A file that is open, with the path inside it if it is an archive."""

    fd: int
    size_bytes: int
    member: str


@dataclass(frozen=True, slots=True)
class PagePicture:
    png: bytes
    pages: int
    width: int
    height: int


def page_worker_setup(instructions: Instructions, isolation: IsolationMode) -> WorkerSetup:
    """How these processes start: like those that prepare files."""
    return WorkerSetup(instructions, worker_memory_bytes(instructions.most_bytes, 2 * AT_ONCE), isolation)


class PageWorkers:
    """Processes that start when there is work and end after a while without. Thread-safe; at most `AT_ONCE` callers
    may be inside."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._used = False
        self._closed = False

    @property
    def processes(self) -> int:
        """How many processes wait for work."""
        return len(self._idle)

    async def end_idle(self, interval_s: float = _IDLE_S) -> None:
        """End processes that were not used for a while, until cancelled."""
        while True:
            await anyio.sleep(interval_s)
            if not self._used:
                self._end_all()
            self._used = False

    def close(self) -> None:
        self._closed = True
        self._end_all()

    def _end_all(self) -> None:
        with self._lock:
            ended, self._idle = self._idle, []
        for process in ended:
            process.kill()

    def draw(self, pdf: OpenPdf, page: int, width: int) -> PagePicture:
        """Draw a page. Raises if the document cannot be read or has no such page."""
        request: Json = {"task": DRAW, "member": pdf.member, "page": page, "width": width}
        return self._ask(pdf, request, 2 * _MAX_DRAWN_BYTES, _picture)

    def place(self, pdf: OpenPdf, page: int, quote: str) -> PlacedQuote:
        """Find a quote on a page. Raises if the document cannot be read or has no such page."""
        request: Json = {"task": PLACE, "member": pdf.member, "page": page, "quote": quote[:MAX_QUOTE]}
        return self._ask(pdf, request, _MAX_PLACED_BYTES, _placed)

    def _ask(self, pdf: OpenPdf, request: Json, max_bytes: int, parse: Callable[[Json], T]) -> T:
        self._used = True
        with self._lock:
            process = self._idle.pop() if self._idle else None
        try:
            process = process or WorkerProcess(self._setup)
            answer = process.answer(request, pdf.fd, _LIMITS, pdf.size_bytes, max_bytes)
            error = error_in(answer)
            result = parse(answer) if error is None else None
        except (WorkerLost, _Invalid) as lost:
            if process is not None:
                process.kill()
            raise ExtractFailed("the page cannot be shown", hint="the file may be damaged") from lost
        except BaseException:
            if process is not None:
                process.kill()
            raise
        with self._lock:
            if not self._closed:
                self._idle.append(process)
                process = None
        if process is not None:
            process.kill()
        if error is not None:
            raise error
        return cast(T, result)


class _Invalid(Exception):
    """An answer that a correct worker never gives."""


def _picture(answer: Json) -> PagePicture:
    pages, width, height = (_count(answer, name) for name in ("pages", "width", "height"))
    _require(1 <= width <= MAX_WIDTH and height >= 1 and width * height <= 2 * MAX_PIXELS)
    try:
        compressed = base64.b64decode(answer["pixels"], validate=True)
        inflater = zlib.decompressobj()
        row = 1 + BYTES_PER_PIXEL * width
        pixels = inflater.decompress(compressed, height * row + 1)
    except (KeyError, TypeError, ValueError, binascii.Error, zlib.error) as error:
        raise _Invalid from error
    # Every row is stored as it is, so that a reader of the image need not trust the worker either.
    _require(len(pixels) == height * row and inflater.eof and not inflater.unused_data)
    _require(not any(pixels[::row]))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    png = _PNG + _chunk(b"IHDR", header) + _chunk(b"IDAT", compressed) + _chunk(b"IEND", b"")
    return PagePicture(png, pages, width, height)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _placed(answer: Json) -> PlacedQuote:
    pages = _count(answer, "pages")
    width, height = (_number(answer.get(name), _MAX_POINTS) for name in ("width_points", "height_points"))
    found, listed = _number(answer.get("found"), 1.0), answer.get("boxes")
    _require(isinstance(listed, list) and len(cast("list[Any]", listed)) <= MAX_BOXES)
    return PlacedQuote(pages, width, height, found, [_box(each) for each in cast("list[Any]", listed)])


def _box(value: Any) -> Box:
    _require(isinstance(value, list) and len(cast("list[Any]", value)) == 4)
    left, top, right, bottom = (_number(each, 1.0) for each in cast("list[Any]", value))
    _require(left < right and top < bottom)
    return left, top, right, bottom


def _count(answer: Json, name: str) -> int:
    value = answer.get(name) if isinstance(answer, dict) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    _require(type(value) is int and 1 <= value <= _MAX_PAGES)
    return cast(int, value)


def _number(value: Any, most: float) -> float:
    _require(type(value) in (int, float) and 0 <= value <= most)
    return float(value)


def _require(is_right: bool) -> None:
    if not is_right:
        raise _Invalid
