"""Normalises what a response has besides its results: artifacts, display, canvas, the older file lists, metadata."""

from __future__ import annotations

import binascii
import mimetypes
import re
from collections.abc import Collection
from itertools import zip_longest
from typing import Final
from urllib.parse import urlsplit

from armarium.capabilities.gateway.contract import CANVAS_CHOICES, DISPLAY_CHOICES
from armarium.capabilities.gateway.model import Attachments
from armarium.capabilities.gateway.servers.untrusted_json import (
    MAX_NAME_LENGTH,
    as_bounded,
    as_list,
    as_object,
    parse_each,
    text_field,
)
from armarium.foundation.schema import Json

MAX_ARTIFACTS: Final = 20
_MAX_URL = 2_000
_MAX_TOKEN = 4_096
_UNKNOWN_TYPE: Final = "application/octet-stream"
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,60}")
_WORD: Final = re.compile(r"[a-z0-9_-]{1,40}")


def parse_attachments(body: Json) -> Attachments:
    """The attachments of a response. Artifacts take precedence over the older `returned_file_names` and
    `returned_file_contents`, and `display` over `canvas`."""
    entries = as_list(body.get("artifacts")) or _older_files(body)
    artifacts, dropped = parse_each(entries[:MAX_ARTIFACTS], _artifact)
    names = {artifact["name"] for artifact in artifacts}
    return Attachments(
        artifacts=artifacts,
        display=_display(as_object(body.get("display")), as_object(body.get("canvas")), names),
        meta_data=as_bounded(as_object(body.get("meta_data"))) or None,
        dropped=dropped + max(0, len(entries) - MAX_ARTIFACTS),
    )


def _older_files(body: Json) -> list[object]:
    names, contents = as_list(body.get("returned_file_names")), as_list(body.get("returned_file_contents"))
    # A name without content becomes an invalid artifact, which is counted.
    return [{"name": name, "b64": b64} for name, b64 in zip_longest(names, contents[: len(names)])]


def _artifact(entry: Json, _: int) -> Json | None:
    """A file of a response: with a plain name, a valid media type and its actual size."""
    name, b64 = _file_name(text_field(entry, "name", MAX_NAME_LENGTH)), entry.get("b64")
    if not name or not isinstance(b64, str):
        return None
    try:
        size = len(binascii.a2b_base64(b64, strict_mode=True))
    except ValueError:
        return None
    mime = (text_field(entry, "mime", 200) or mimetypes.guess_type(name)[0] or "").lower()
    described: Json = {"name": name, "b64": b64, "mime": mime if _MEDIA_TYPE.fullmatch(mime) else _UNKNOWN_TYPE}
    described["size"] = size
    if description := text_field(entry, "description", MAX_NAME_LENGTH):
        described["description"] = description
    return described | _words(entry, ("viewer",))


def _file_name(given: str | None) -> str:
    """The last component of a name, without control characters: a client may save the file under it."""
    last = re.split(r"[/\\]", given or "")[-1]
    clean = "".join(character for character in last if character.isprintable()).strip()
    return "" if clean in (".", "..") else clean


def _display(display: Json, canvas: Json, names: Collection[str]) -> Json | None:
    """How to show the artifacts. Values outside the contract are left out."""
    if not display and not canvas:
        return None
    found: Json = {}
    is_open = display.get("open_canvas", canvas.get("open"))
    if isinstance(is_open, bool):
        found["open_canvas"] = is_open
    if (primary := _file_name(text_field(display, "primary_file", MAX_NAME_LENGTH))) in names:
        found["primary_file"] = primary
    found |= _choices({"mode": canvas.get("mode"), **display}, DISPLAY_CHOICES)
    if shown := _canvas(canvas):
        found["canvas"] = shown
    return found or None


def _canvas(canvas: Json) -> Json | None:
    """A page to embed. Only a web address can be embedded."""
    url = text_field(canvas, "url", _MAX_URL)
    if url is None or canvas["url"] != url or not _is_web_address(url):
        return None
    texts = {
        name: text_field(canvas, name, most) for name, most in (("id", 200), ("title", 200), ("token", _MAX_TOKEN))
    }
    found = {name: text for name, text in texts.items() if text}
    return {"type": "iframe", "url": url, **found, **_choices(canvas, CANVAS_CHOICES)}


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and url.isprintable()


def _choices(given: Json, choices: dict[str, tuple[str, ...]]) -> Json:
    return {name: given[name] for name, allowed in choices.items() if given.get(name) in allowed}


def _words(given: Json, names: tuple[str, ...]) -> Json:
    texts = {name: text_field(given, name, MAX_NAME_LENGTH) for name in names}
    return {name: text for name, text in texts.items() if text and _WORD.fullmatch(text)}
