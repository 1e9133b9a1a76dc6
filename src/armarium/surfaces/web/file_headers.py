"""HTTP headers of files: type, name, range and validators."""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import quote

from armarium.foundation.byte_transfers import ByteSource, RangeNotSatisfiable

_IMAGE: Final = {
    "avif": "image/avif",
    "bmp": "image/bmp",
    "gif": "image/gif",
    "ico": "image/x-icon",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "png": "image/png",
    "svg": "image/svg+xml",
    "webp": "image/webp",
}
_SOUND: Final = {
    "aac": "audio/aac",
    "flac": "audio/flac",
    "m4a": "audio/mp4",
    "mp3": "audio/mpeg",
    "oga": "audio/ogg",
    "ogg": "audio/ogg",
    "opus": "audio/ogg",
    "wav": "audio/wav",
}
_FILM: Final = {"m4v": "video/mp4", "mp4": "video/mp4", "ogv": "video/ogg", "webm": "video/webm"}
_PLAIN: Final = (
    "bash bat c cc cfg cmd conf cpp cs css csv diff go h hpp htm html ini java js json jsonl jsx kt lock log lua "
    "markdown md mjs patch php pl py rb rs rst scss sh sql svelte swift tex toml ts tsv tsx txt vue xhtml xml yaml yml "
    "zsh"
)
# Everything that a browser could execute is plain text here, except SVG, which images need and the policy disarms.
_TYPES: Final = {
    **_IMAGE,
    **_SOUND,
    **_FILM,
    "pdf": "application/pdf",
    **dict.fromkeys(_PLAIN.split(), "text/plain; charset=utf-8"),
}
_UNKNOWN: Final = "application/octet-stream"
_SANDBOX: Final = "sandbox"
_POLICIES: Final = {"image/svg+xml": "sandbox; default-src 'none'; style-src 'unsafe-inline'"}
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9 ._()+-]")
_RANGE: Final = re.compile(r"bytes=[ \t]*([0-9]{0,19})-([0-9]{0,19})[ \t]*")
_ETAG: Final = re.compile(r'(?:W/)?("[^"]*")')


def headers_of_file(source: ByteSource, *, as_attachment: bool) -> dict[str, str]:
    """The headers of every response with bytes of the file. Browsers show only types that are safe to show, and only in
    a sandbox; they keep nothing that they may not fetch again."""
    extension = source.name.rpartition(".")[2].lower() if "." in source.name.lstrip(".") else ""
    content_type = _TYPES.get(extension, _UNKNOWN)
    return {
        "content-type": content_type,
        "content-disposition": disposition(source.name, as_attachment=as_attachment or content_type == _UNKNOWN),
        "content-security-policy": _POLICIES.get(content_type, _SANDBOX),
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "private, no-cache",
        "accept-ranges": "bytes",
        "etag": _etag(source),
    }


def disposition(name: str, *, as_attachment: bool) -> str:
    """How to show a file, and under which name to save it (RFC 6266). Bytes that are not UTF-8 cannot be told."""
    shown = os.fsencode(name).decode("utf-8", "replace")
    kind = "attachment" if as_attachment else "inline"
    plain = _NOT_PLAIN.sub("_", shown)
    if plain == shown:
        return f'{kind}; filename="{plain}"'
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(shown, safe='')}"


def is_known(source: ByteSource, if_none_match: str) -> bool:
    """Whether the client has this content already."""
    return if_none_match.strip() == "*" or _etag(source) in _ETAG.findall(if_none_match)


def requested_range(source: ByteSource, wanted: str | None, if_range: str | None) -> tuple[int, int] | None:
    """The first byte and the end of the range that a client wants; None for the whole file. Several ranges, other units
    and malformed ranges are ignored (RFC 9110, 14.2). Raises `RangeNotSatisfiable`."""
    if wanted is None or (if_range is not None and if_range.strip() != _etag(source)):
        return None
    found = _RANGE.fullmatch(wanted.strip())
    if found is None or found[1] == found[2] == "":
        return None
    size = source.size
    if found[1] == "":
        first, end = max(0, size - int(found[2])), size
    else:
        first, end = int(found[1]), size if found[2] == "" else min(size, int(found[2]) + 1)
        if found[2] != "" and int(found[2]) < first:
            return None
    if first >= end:
        raise RangeNotSatisfiable(f"the file has {size} bytes", hint="ask for a range inside of it", size=size)
    return first, end


def _etag(source: ByteSource) -> str:
    return f'"{source.tag}"'
