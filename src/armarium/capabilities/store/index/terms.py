"""The words a chunk is found by: split, stemmed and counted, as the word index of the corpus does it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from armarium.retrieval.terms import index_text, is_lone_character, language_of, little_words, word_analyzer

TOKENIZER: Final = "armarium-words-1"
"""Kept with each chunk. Raised whenever words are cut, stemmed or kept in another way."""

MOST_QUERY_WORDS: Final = 32
"""What is looked for of a query; of a longer one, the words that it begins with."""


@dataclass(frozen=True, slots=True)
class ChunkTerms:
    """The words of a chunk."""

    counts: dict[str, int]
    """How often each stem stands there."""
    length: int
    """How many words there are."""
    language: str
    """The language whose endings were stripped."""


def chunk_terms(text: str) -> ChunkTerms:
    """What a chunk is found by."""
    language = language_of(text)
    stems = _stems(index_text(text), language)
    counts = Counter(stems)
    # Scripts without spaces are cut in pairs of characters; a query may be a single one.
    counts.update({character: 1 for pair in list(counts) if _is_pair(pair) for character in pair})
    return ChunkTerms(dict(counts), len(stems), language)


def query_terms(query: str, languages: Iterable[str]) -> list[str]:
    """The stems to look for in chunks of these languages, without little words unless there are no others.

    A query is too short to tell its language, and chunks are stemmed by theirs, so each of these has a say; most
    words have one stem in all of them.
    """
    words = word_analyzer(None).analyze(index_text(query.encode("utf-8", "replace").decode()))
    stems: dict[str, None] = {}
    for language in sorted({*languages} | {"english"}):
        dropped = little_words(query, language)
        kept = list(dict.fromkeys(word for word in words if word not in dropped) or dict.fromkeys(words))
        stems |= dict.fromkeys(_stems(" ".join(kept[:MOST_QUERY_WORDS]), language))
    return list(stems)


def _is_pair(stem: str) -> bool:
    return len(stem) == 2 and all(map(is_lone_character, stem))


def _stems(text: str, language: str) -> list[str]:
    # English endings go in every language: names and terms are English in most of them.
    if language != "english":
        text = " ".join(word_analyzer(language).analyze(text))
    return word_analyzer("english").analyze(text)
