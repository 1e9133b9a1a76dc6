"""A directory for tests of the console that ask it, and the moment when it is indexed."""

from __future__ import annotations

import io
import wave
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

from armarium.surfaces.console.links import OwnerLinks
from support.api_server import until_indexed
from support.browser import session_of
from support.corpus_calls import write_lighthouse

HOSTILE_NAME = "<img src=x onerror=alert(1)>.md"
HOSTILE = (
    "The hostile smuggler writes </script><script>alert(1)</script> and <img src=x onerror=alert(2)> and "
    "[click](javascript:alert(3)) and [pixel](data:text/html,x)."
)
PAGES = (
    ("The lamp is lit at dusk by the keeper.", "In fog the horn sounds every two min-", "utes until noon."),
    ("The supply boat comes on Mondays.", "Its captain is called Jonas."),
)


def write_searchable(root: Path) -> None:
    """Prose, code, a PDF, 90 seconds of silence, and a file that tries to be a part of the page."""
    write_lighthouse(root)
    (root / "report.pdf").write_bytes(pdf(PAGES))
    (root / HOSTILE_NAME).write_text(f"# Smuggler\n\n{HOSTILE}\n")
    with wave.open(str(root / "talk.wav"), "wb") as recording:
        recording.setnchannels(1)
        recording.setsampwidth(1)
        recording.setframerate(8000)
        recording.writeframes(bytes(8000 * 90))
    (root / "tides.md").write_text("# Tides\n\nThe spring tide is measured at full and new moon, by the pole.\n")


def pdf(pages: Sequence[Sequence[str]]) -> bytes:
    """A PDF with these lines."""
    target = io.BytesIO()
    canvas = Canvas(target, pagesize=A4)
    for lines in pages:
        for number, line in enumerate(lines):
            canvas.drawString(60, 760 - 14 * number, line)
        canvas.showPage()
    canvas.save()
    return target.getvalue()


@asynccontextmanager
async def owners_api(address: str, state_dir: Path) -> AsyncGenerator[httpx.AsyncClient]:
    """The JSON API, for a session of the owner's."""
    session = await session_of(address, code=OwnerLinks(state_dir).create())
    (cookie,) = session["cookies"]
    (proof,) = session["origins"][0]["localStorage"]
    headers = {"cookie": f"{cookie['name']}={cookie['value']}", "x-armarium-proof": proof["value"]}
    async with httpx.AsyncClient(base_url=f"{address}/api", headers=headers, timeout=60) as http:
        yield http


async def until_searchable(address: str, state_dir: Path) -> None:
    """Wait until the whole directory is indexed."""
    async with owners_api(address, state_dir) as http:
        await until_indexed(http)
