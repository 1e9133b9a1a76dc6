"""Decodes the bytes of a file: detects the encoding, normalises line ends, and never fails."""

from __future__ import annotations

import codecs
import re

_SAMPLE_BYTES = 65_536
"""The size of the sample for detecting an encoding; takes a few milliseconds at most."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose BOM it starts with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ZERO_AT = {"utf-32-le": (1, 2, 3), "utf-32-be": (0, 1, 2), "utf-16-le": (1, 3), "utf-16-be": (0, 2)}
"""The bytes of every four that are mostly zero."""
_HIGH_RUN = re.compile(rb"[\x80-\xff]+")
_HIGH_IN_WORD = re.compile(
    rb"(?<=[A-Za-z])[\x80-\xff]{1,3}(?![\x80-\xff])|(?<![\x80-\xff])[\x80-\xff]{1,3}(?=[A-Za-z])"
)
_LEAD_BYTES = re.compile(rb"[\x81\x83\x84\x88-\x90\x98-\x9f]")
"""The lead bytes of most Shift JIS characters, which are rare in Latin encodings."""
_ISO_2022_JP = re.compile(rb"\x1b\$[@B]")

_LATIN = ("cp1252", "cp1250", "iso8859_2")
"""Similar encodings that detectors confuse."""
_LATIN_LIKE = re.compile(
    r"cp125[0247]|iso8859_(1|2|3|4|9|1\d)$|latin|mac_(?!cyrillic|greek)|cp(037|437|85\d|86\d|775)|hp_|ascii"
)
_UNMARKED = ["utf_7", "utf_16", "utf_16_le", "utf_16_be", "utf_32", "utf_32_le", "utf_32_be"]
"""Encodings that `wide_encoding` has excluded, and that detectors report for short samples."""
_SYMBOL_IN_WORD = re.compile(r"(?<=[^\W\d_])[^\w\s'’.\-‐‑·]+(?=[^\W\d_])|\ufffd|[\x80-\x9f]")


def decode(data: bytes) -> str:
    """The text of `data`, with `\\n` as the only line end and without NUL."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        encoding = wide_encoding(data) or _guess(data)
        text = data.decode(encoding, errors="replace")
    else:
        if "\0" in text and (encoding := wide_encoding(data)):
            text = data.decode(encoding, errors="replace")
        elif b"\x1b" in data and _ISO_2022_JP.search(data):
            text = data.decode("iso2022_jp_2", errors="replace")
    return _normalised_lines(text.removeprefix("\ufeff"))


def clean(text: str) -> str:
    """The text with `\\n` as the only line end, without NUL and without unpaired surrogates."""
    text = _normalised_lines(text)
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _normalised_lines(text: str) -> str:
    # Each check is fast and usually avoids a copy.
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\0", "\ufffd") if "\0" in text else text


def wide_encoding(head: bytes) -> str | None:
    """The encoding of UTF-16 or UTF-32 text, detected by its BOM or by the positions of zero bytes."""
    for bom, encoding in _BOMS:
        if head.startswith(bom):
            return encoding
    sample = head[: _SAMPLE_BYTES // 16]
    if b"\0" not in sample:
        return None
    quarters = [sample[offset::4] for offset in range(4)]
    zeros = [each.count(0) / len(each) if len(each) > 1 else 0.0 for each in quarters]
    for encoding, zero_at in _ZERO_AT.items():
        if all(share > 0.4 if place in zero_at else share < 0.05 for place, share in enumerate(zeros)):
            return encoding
    return None


def _guess(data: bytes) -> str:
    """The encoding of bytes that are not valid UTF-8."""
    sample = _sample(data)
    if _nearly_utf8(sample):
        return "utf-8"
    if _is_latin(sample):
        return _latin(sample)
    from charset_normalizer import from_bytes

    best = from_bytes(sample, cp_exclusion=_UNMARKED).best()
    if best is None or best.encoding in _LATIN or _LATIN_LIKE.match(best.encoding):
        return _latin(sample)
    return best.encoding


def _latin(sample: bytes) -> str:
    """The encoding with the fewest symbols inside words."""
    return min(_LATIN, key=lambda encoding: len(_SYMBOL_IN_WORD.findall(sample.decode(encoding, errors="replace"))))


def _is_latin(sample: bytes) -> bool:
    """Whether bytes above ASCII are single letters inside words, as in Latin scripts. Detectors need longer texts: they
    take a few umlauts for Arabic."""
    runs = _HIGH_RUN.findall(sample)
    high = sum(map(len, runs))
    lines = sum(len(line) for line in sample.split(b"\n") if _HIGH_RUN.search(line))
    if high > 0.3 * lines or len(_LEAD_BYTES.findall(sample)) > high / 2:
        return False
    return high < 1.6 * len(runs) or len(_HIGH_IN_WORD.findall(sample)) > 0.8 * len(runs)


def _sample(data: bytes) -> bytes:
    """The most informative part: complete lines around the first byte that is not ASCII."""
    first = _HIGH_RUN.search(data)
    start = max(0, first.start() - 1024) if first else 0
    start = data.rfind(b"\n", start - 1024, start) + 1 if start else 0
    return data[start : start + _SAMPLE_BYTES]


def _nearly_utf8(sample: bytes) -> bool:
    """Whether the bytes are UTF-8 with a few errors; other encodings rarely form valid UTF-8 sequences."""
    text = sample.decode("utf-8", errors="replace")
    broken = text.count("\ufffd")
    sequences = sum(1 for char in text if char > "\x7f") - broken
    return sequences > 0 and broken <= max(2, sequences // 10) and sequences >= broken
