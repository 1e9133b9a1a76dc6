"""Checksums that detect damaged rows.

Each row that a search result shows has its own checksum. The lists of all documents and all chunks, which every search
uses, have a tally each: the sum of a mark for each live row, updated with every transaction.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

DOCUMENTS_TALLY: Final = "documents_tally"
CHUNKS_TALLY: Final = "passages_tally"

_MODULUS: Final = 1 << 64
_FACTORS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
_MIXERS: Final = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_CHECKED: Final = b"\x01"
_CHECK_BYTES: Final = 4


def span_check(
    chunk_id: int,
    rep_type: str,
    kind: str,
    context: str,
    text: str,
    text_hash: bytes,
    span_kind: str,
    start: int,
    end: int,
) -> str:
    """The `extra_json` of a span: a checksum of everything a search result shows except the path."""
    shown = f"{chunk_id}\0{rep_type}\0{kind}\0{context}\0{text}\0{span_kind}\0{start}\0{end}\0".encode()
    return f'{{"crc32":{zlib.crc32(text_hash, zlib.crc32(shown))}}}'


def text_check(content: bytes | None, meta_json: str) -> int:
    """The checksum of a representation's stored text and metadata."""
    return zlib.crc32(meta_json.encode(), zlib.crc32(content or b""))


def setting_check(key: str, value: str) -> str:
    return str(zlib.crc32(f"{key}\0{value}".encode()))


def seal_vector(text_hash: bytes, vector: bytes) -> bytes:
    """A vector with its checksum appended. The odd length tells it from plain vectors of 16-bit numbers."""
    return vector + zlib.crc32(vector, zlib.crc32(text_hash)).to_bytes(_CHECK_BYTES, "little") + _CHECKED


def unseal_vector(text_hash: bytes, stored: bytes) -> bytes | None:
    """The vector, or None if it is damaged. Vectors without a checksum, from an earlier version, are accepted."""
    if len(stored) % 2 == 0:
        return stored or None
    vector = stored[: -_CHECK_BYTES - 1]
    return vector if seal_vector(text_hash, vector) == stored else None


def document_mark(doc_id: int, rel_path: str, doc_type: str) -> int:
    """The contribution of a live document to the tally of documents."""
    row = f"{doc_id}\0{rel_path}\0{doc_type}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(row, digest_size=8).digest(), "little")


def chunk_mark(chunk_id: int, doc_id: int, is_code: int) -> int:
    """The contribution of a live chunk to the tally of chunks."""
    mixed = sum(value * factor for value, factor in zip((chunk_id, doc_id, is_code), _FACTORS, strict=True)) % _MODULUS
    for mixer in _MIXERS:
        mixed = (mixed ^ (mixed >> 30)) * mixer % _MODULUS
    return mixed ^ (mixed >> 31)


def chunks_tally(rows: NDArray[numpy.int64]) -> int:
    """The tally of chunks, given as rows of id, document id and whether it is code."""
    import numpy

    mixed = (rows.astype(numpy.uint64) * numpy.array(_FACTORS, numpy.uint64)).sum(axis=1, dtype=numpy.uint64)
    for mixer in _MIXERS:
        mixed = (mixed ^ (mixed >> numpy.uint64(30))) * numpy.uint64(mixer)
    mixed ^= mixed >> numpy.uint64(31)
    return int(mixed.sum(dtype=numpy.uint64))


def tally(value: int) -> str:
    """A tally in its stored form."""
    return str(value % _MODULUS)
