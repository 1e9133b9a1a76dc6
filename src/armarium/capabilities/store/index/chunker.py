"""Splits a file into chunks, exact byte ranges that `file_read` returns, and their text into terms for lexical search.

The corpus splits decoded documents at headings and definitions and locates chunks by lines. The contract of the store
requires byte ranges of any text, and an edit at the end must not change earlier chunks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from armarium.retrieval.search.terms import index_text, is_lone_character, language_of, stop_words_for, term_analyzer

CHUNKER: Final = "slices-1"
"""Must change whenever the same bytes are split differently."""

TOKENIZER: Final = "armarium-words-1"
"""Stored with each chunk. Must change whenever tokenisation or stemming changes."""

MOST_QUERY_WORDS: Final = 32
"""How many words of a query are used; the first ones of a longer query."""

TARGET_BYTES: Final = 1200
MOST_BYTES: Final = 1600
OVERLAP_BYTES: Final = 150
_LEAST_BYTES: Final = 600
_LONGEST_OVERLAP_BYTES: Final = 220
_SHORTEST_OVERLAP_BYTES: Final = 60

# The database cannot store NUL and invalid UTF-8 as text. `surrogateescape` decodes each invalid byte, and nothing
# else, to an unpaired surrogate.
_NOT_TEXT = re.compile("[\x00\udc80-\udcff]+")

_PARAGRAPH = re.compile(rb"\n[ \t\r]*\n")
_LINE = re.compile(rb"\n")
_SENTENCE = re.compile(rb"[.!?][\"')\]]{0,3}[ \t\r\n]|\xe3\x80\x82|\xef\xbc[\x81\x9f]")
_WORD = re.compile(rb"[ \t\r\n]")
_ENDS = (_PARAGRAPH, _LINE, _SENTENCE, _WORD)
_BEGINNINGS = (_LINE, _SENTENCE, _WORD)


@dataclass(frozen=True, slots=True)
class ByteChunk:
    """A chunk: `text.encode() == content[start:end]`."""

    start: int
    end: int
    text: str


def split_chunks(content: bytes) -> list[ByteChunk]:
    """The chunks of a file in order, each overlapping the previous one. Chunks of white space are left out."""
    found: list[ByteChunk] = []
    for offset, run in _runs_of_text(content):
        for start, end in _slices(run):
            text = run[start:end].decode()
            if not text.isspace():
                found.append(ByteChunk(offset + start, offset + end, text))
    return found


def _runs_of_text(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The runs of valid text in the content, each with its offset."""
    decoded = content.decode("utf-8", "surrogateescape")
    place = position = 0
    for gap in _NOT_TEXT.finditer(decoded):
        run = decoded[position : gap.start()].encode()
        if run:
            yield place, run
        # Each character of a gap stands for one byte.
        place += len(run) + gap.end() - gap.start()
        position = gap.end()
    if position < len(decoded):
        yield place, content[place:]


def _slices(run: bytes) -> Iterator[tuple[int, int]]:
    start = 0
    while len(run) - start > MOST_BYTES:
        end = _end(run, start)
        yield start, end
        start = _beginning(run, end)
    yield start, len(run)


def _end(run: bytes, start: int) -> int:
    """The end of a chunk: at the best kind of boundary, as late as possible without exceeding the target size."""
    window = run[start + _LEAST_BYTES : start + MOST_BYTES]
    for kind in _ENDS:
        best = None
        for match in kind.finditer(window):
            if best is not None and match.end() > TARGET_BYTES - _LEAST_BYTES:
                break
            best = match.end()
        if best is not None:
            return start + _LEAST_BYTES + best
    return _character_at_or_before(run, start + TARGET_BYTES)


def _beginning(run: bytes, end: int) -> int:
    """The start of the next chunk, so that a sentence split at `end` is complete in one of the two."""
    first = end - _LONGEST_OVERLAP_BYTES
    window = run[first : end - _SHORTEST_OVERLAP_BYTES]
    for kind in _BEGINNINGS:
        ends = [match.end() for match in kind.finditer(window)]
        if ends:
            return first + min(ends, key=lambda place: abs(_LONGEST_OVERLAP_BYTES - OVERLAP_BYTES - place))
    return _character_at_or_before(run, end - OVERLAP_BYTES)


def _character_at_or_before(run: bytes, place: int) -> int:
    while run[place] & 0b1100_0000 == 0b1000_0000:
        place -= 1
    return place


@dataclass(frozen=True, slots=True)
class ChunkTerms:
    counts: dict[str, int]
    """Frequency of each stem."""
    length: int
    """Number of words."""
    language: str
    """The language of the stemmer."""


def chunk_terms(text: str) -> ChunkTerms:
    language = language_of(text)
    stems = _stems(index_text(text), language)
    counts = Counter(stems)
    # Scripts without spaces are split into pairs of characters; a query may be a single character.
    pairs = [stem for stem in counts if len(stem) == 2 and all(map(is_lone_character, stem))]
    counts.update({character: 1 for pair in pairs for character in pair})
    return ChunkTerms(dict(counts), len(stems), language)


def query_terms(query: str, languages: Iterable[str]) -> list[str]:
    """The stems to search for in chunks of these languages, without stop words unless there are no others.

    A query is too short to detect its language, and each chunk is stemmed by its own, so the query is stemmed by all of
    them; most words have the same stem in every language.
    """
    words = term_analyzer(None).analyze(index_text(query.encode("utf-8", "replace").decode()))
    stems: dict[str, None] = {}
    for language in sorted({*languages} | {"english"}):
        dropped = stop_words_for(query, language)
        kept = list(dict.fromkeys(word for word in words if word not in dropped) or dict.fromkeys(words))
        stems |= dict.fromkeys(_stems(" ".join(kept[:MOST_QUERY_WORDS]), language))
    return list(stems)


def _stems(text: str, language: str) -> list[str]:
    # English suffixes are stripped in every language, because names and technical terms are often English.
    if language != "english":
        text = " ".join(term_analyzer(language).analyze(text))
    return term_analyzer("english").analyze(text)
