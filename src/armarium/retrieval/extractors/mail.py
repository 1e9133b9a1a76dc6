"""Extracts e-mail messages and mailboxes as Markdown: headers, text and attachments.

Text attachments are included; of others, only the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from email import message_from_bytes
from email.header import decode_header, make_header
from email.message import Message
from itertools import islice

from armarium.retrieval.chunks import ExtractedText, ExtractLimits
from armarium.retrieval.encodings import clean, decode
from armarium.retrieval.errors import ExtractFailed
from armarium.retrieval.extractors.html import render

_MAX_HEADER_CHARS = 4_096
_HEADERS = ("From", "To", "Cc", "Date")
_TEXT_ATTACHMENTS = frozenset({"text/plain", "text/html", "text/markdown", "text/csv", "text/tab-separated-values"})
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_SEPARATOR = re.compile(rb"(?:\A|(?<=\n)\r?\n)From [^\n]*\n")
_QUOTED_SEPARATOR = re.compile(rb"^>(>*From )", re.MULTILINE)


def extract_message(data: bytes) -> ExtractedText:
    message = message_from_bytes(data)
    if not message.keys():
        raise ExtractFailed("the file is not an e-mail message")
    text = clean(_rendered(message) + "\n")
    return ExtractedText(text, structure="markdown", title=_header(message, "Subject") or None)


def extract_mailbox(data: bytes, limits: ExtractLimits) -> ExtractedText:
    """All messages of a mailbox, each with its subject as heading."""
    messages = [_rendered(message_from_bytes(raw)) for raw in _messages(data, limits.max_messages)]
    if not messages:
        raise ExtractFailed("the file is not a mailbox")
    return ExtractedText(clean("\n\n".join(messages) + "\n"), structure="markdown")


def _messages(data: bytes, most: int) -> Iterator[bytes]:
    separators = list(islice(_SEPARATOR.finditer(data), most + 1))
    ends = [following.start() for following in separators[1:]] + [len(data)]
    for separator, end in zip(separators[:most], ends, strict=False):
        yield _QUOTED_SEPARATOR.sub(rb"\1", data[separator.end() : end])


def _header(message: Message, name: str) -> str:
    raw = next((str(value) for key, value in message.raw_items() if key.lower() == name.lower()), "")
    return _decoded_header(raw[:_MAX_HEADER_CHARS])


def _decoded_header(raw: str) -> str:
    # Not `email.policy.default`: its header parser takes gigabytes for a subject of half a megabyte.
    text = decode(raw.encode("utf-8", "surrogateescape"))  # undecoded bytes arrive as surrogate escapes
    with suppress(ValueError, LookupError):  # unknown encoding, or bytes that are invalid in it
        text = str(make_header(decode_header(text)))
    return " ".join(clean(text).split())


def _rendered(message: Message) -> str:
    headers = [f"{name}: {value}" for name in _HEADERS if (value := _header(message, name))]
    attachments = [part for part in message.walk() if not part.is_multipart() and _is_attachment(part)]
    names = [_file_name(part) or part.get_content_type() for part in attachments]
    body = _body(message, "text/plain") or _body(message, "text/html")
    blocks = [f"# {_header(message, 'Subject') or '(no subject)'}", "\n".join(headers), body]
    if attachments:
        blocks.append("Attachments: " + ", ".join(names))
    for name, part in zip(names, attachments, strict=True):
        if part.get_content_type() in _TEXT_ATTACHMENTS and (text := _text(part)):
            blocks.append(f"## {name}\n\n{text}")
    return "\n\n".join(filter(None, blocks))


def _file_name(part: Message) -> str:
    if any(len(str(part.get(header, ""))) > _MAX_HEADER_CHARS for header in ("Content-Disposition", "Content-Type")):
        return ""
    try:
        return _decoded_header(part.get_filename() or "")
    except (ValueError, LookupError, TypeError):  # an invalid RFC 2231 value
        return ""


def _is_attachment(part: Message) -> bool:
    return bool(_file_name(part)) or part.get_content_disposition() == "attachment"


def _body(message: Message, content_type: str) -> str:
    """The texts of this type that are not attachments, joined."""
    texts = [
        _text(part)
        for part in message.walk()
        if part.get_content_type() == content_type and not part.is_multipart() and not _is_attachment(part)
    ]
    return "\n\n".join(filter(None, texts))


def _text(part: Message) -> str:
    """The text of a part; empty when its content is binary."""
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes) or (b"\0" in payload and not payload.startswith(_UTF16_MARKS)):
        return ""
    text = _decoded(payload, part.get_content_charset())
    return "\n".join(render(text).lines) if part.get_content_type() == "text/html" else text.strip()


def _decoded(payload: bytes, charset: str | None) -> str:
    if charset and charset not in {"us-ascii", "utf-8"}:
        with suppress(LookupError, ValueError):  # declared charsets are often wrong
            return clean(payload.decode(charset))
    return decode(payload)
