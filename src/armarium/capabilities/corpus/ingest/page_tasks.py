"""What a worker process does with one page of a PDF: draws it, or finds a quote on it."""

from __future__ import annotations

import base64
from typing import Any, Final, cast

from armarium.capabilities.corpus.errors import CorpusError, ExtractFailed, InvalidRange
from armarium.capabilities.corpus.files.archives import ArchiveLimits, Member, members
from armarium.foundation.errors import ArmariumError
from armarium.foundation.schema import Json
from armarium.retrieval.extractors.pdf_pages import NoSuchPage, draw_page, place_quote

DRAW: Final = "draw"
PLACE: Final = "place"
_LONGEST_MESSAGE: Final = 200


def page_answer(fd: int, request: Json, max_bytes: int) -> Json:
    """The answer to a request about an open file, or the error. Whatever the file does to the parser stays here."""
    try:
        with open(fd, "rb", closefd=False) as file:
            file.seek(0)
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            return _failure(ExtractFailed("the file is too large"))
        if request["member"]:
            data = _member(data, request["member"], max_bytes)
        if request["task"] == DRAW:
            drawn = draw_page(data, request["page"], request["width"])
            pixels = base64.b64encode(drawn.pixels).decode()
            return {"pages": drawn.pages, "width": drawn.width, "height": drawn.height, "pixels": pixels}
        placed = place_quote(data, request["page"], request["quote"])
        size = {"width_points": placed.width_points, "height_points": placed.height_points}
        return {"pages": placed.pages, **size, "found": placed.found, "boxes": placed.boxes}
    except NoSuchPage as error:
        return _failure(InvalidRange(f"the document has {error.pages} pages"))
    except ArmariumError as error:
        return _failure(ExtractFailed(error.message))
    except Exception as error:  # noqa: BLE001 one page, whatever it is made of, must not end the worker
        return _failure(ExtractFailed(f"the page cannot be read ({type(error).__name__})"))


def _member(archive: bytes, path: str, max_bytes: int) -> bytes:
    limits = ArchiveLimits(max_member_bytes=max_bytes)
    for member in members(archive, limits, deep=True, wanted=lambda each: each == path):
        if isinstance(member, Member) and member.path == path:
            return member.data
    raise ExtractFailed("the archive has no such member")


def _failure(error: CorpusError) -> Json:
    return {"error": [error.code, error.message]}


def error_in(answer: Any) -> CorpusError | None:
    """The error in an answer, if it is one of those above."""
    error: Any = cast(Json, answer).get("error") if isinstance(answer, dict) else None
    if not isinstance(error, list) or not all(isinstance(each, str) for each in cast("list[Any]", error)):
        return None
    code, *rest = cast("list[str]", error) or [""]
    message = " ".join(rest)[:_LONGEST_MESSAGE]
    if code == InvalidRange.code:
        return InvalidRange(message, hint="ask for a page that exists")
    return ExtractFailed(message) if code == ExtractFailed.code else None
