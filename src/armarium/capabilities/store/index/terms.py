"""Terms for lexical search: words of chunks and queries, tokenised and stemmed as in the corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from armarium.retrieval.search.terms import index_text, is_lone_character, language_of, stop_words_for, term_analyzer

TOKENIZER: Final = "armarium-words-1"
"""Stored with each chunk. Must change whenever tokenisation or stemming changes."""

MOST_QUERY_WORDS: Final = 32
"""How many words of a query are used; the first ones of a longer query."""


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
    counts.update({character: 1 for pair in list(counts) if _is_pair(pair) for character in pair})
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


def _is_pair(stem: str) -> bool:
    return len(stem) == 2 and all(map(is_lone_character, stem))


def _stems(text: str, language: str) -> list[str]:
    # English suffixes are stripped in every language, because names and technical terms are often English.
    if language != "english":
        text = " ".join(term_analyzer(language).analyze(text))
    return term_analyzer("english").analyze(text)
