"""Turns texts and queries into index terms: splits identifiers, and scripts without spaces into bigrams."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, cast

import re2  # pyright: ignore[reportMissingTypeStubs] the package has no type information

from armarium.retrieval.search.stop_words import STOP_WORDS

if TYPE_CHECKING:
    from tantivy import TextAnalyzer

_LANGUAGE_SAMPLE_CHARACTERS = 500
_MIN_STOP_WORDS = 3
_CLEARLY_ENGLISH = 0.25
_MAX_CACHED_NAMES = 40_000
_MAX_CACHED_NAME_BYTES = 64
_MAX_TERM_BYTES = 64

# Most prose has no identifiers. RE2 takes 6 ms per megabyte to find that out, `re` 100 ms.
_ANY_COMPOUND: Any = cast(Any, re2).compile(rb"[a-z0-9][A-Z]|[A-Z]{2}[a-z]|[A-Za-z0-9]_+[A-Za-z0-9]")
_NAME_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
_OTHERS_TO_SPACES = bytes(byte if byte in _NAME_BYTES else 32 for byte in range(256))
_HUMP = re.compile(rb"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_CJK = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"
)
_SOUTH_EAST_ASIAN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
_UNSPACED_RUN = re.compile(f"[{_CJK}{_SOUTH_EAST_ASIAN}]+")


def index_text(text: str) -> str:
    """The input of the lexical index for a text or a query.

    The parts of `getUserName` and the joined form of `get_user_name` are appended. The tokenizer keeps the first as one
    term and splits the second; both must be found by "user name" and by each other.
    """
    if not text.isascii():
        # NFKC resolves ligatures from PDFs and full-width letters. Combining marks are removed, because the tokenizer
        # ends a term at them and would split Hindi words; vowel signs count as letters and stay.
        text = _combining_marks().sub("", unicodedata.normalize("NFKC", text))
        text = _UNSPACED_RUN.sub(_bigrams, text)
    encoded = text.encode("utf-8", "replace")
    if _ANY_COMPOUND.search(encoded) is None:
        return text
    names = encoded.translate(_OTHERS_TO_SPACES).split()
    more = b" ".join(filter(None, map(_OTHER_SPELLINGS.__getitem__, names)))
    return f"{text}\n{more.decode('ascii')}"


class _OtherSpellings(dict[bytes, bytes]):
    """A cache of the additional spellings of a name, in half the time of `lru_cache`."""

    def __missing__(self, name: bytes) -> bytes:
        if len(self) >= _MAX_CACHED_NAMES:
            self.clear()
        spellings: list[bytes] = []
        if b"_" in name and b"_" in (inner := name.strip(b"_")):
            spellings.append(inner.replace(b"_", b""))
        if not name.islower() and not name.isupper() and _HUMP.search(name):
            spellings.append(_HUMP.sub(b" ", name))
        found = b" ".join(spellings)
        if len(name) <= _MAX_CACHED_NAME_BYTES:
            self[name] = found
        return found


_OTHER_SPELLINGS = _OtherSpellings()


def is_lone_character(word: str) -> bool:
    """Whether a term is a single character of a script that is indexed in bigrams, so that no bigram equals it."""
    return len(word) == 1 and _UNSPACED_RUN.match(word) is not None


def language_of(text: str) -> str:
    """The language with the most stop words in the text; English if there are few, as in code and lists of names."""
    words = text[:_LANGUAGE_SAMPLE_CHARACTERS].lower().split()
    if sum(map(STOP_WORDS["english"].__contains__, words)) > _CLEARLY_ENGLISH * len(words):
        return "english"
    languages = _languages_by_word()
    votes = Counter(chain.from_iterable(languages[word] for word in words if word in languages))
    if not votes:
        return "english"
    language, count = votes.most_common(1)[0]
    return language if count >= _MIN_STOP_WORDS and count > votes["english"] else "english"


def stop_words_for(query: str, language: str) -> frozenset[str]:
    """The stop words to drop from a query for texts in `language`: of that language and of the query's own."""
    return STOP_WORDS[language] | STOP_WORDS[language_of(query)]


def _bigrams(run: re.Match[str]) -> str:
    return f" {' '.join(map(''.join, pairwise(run[0]))) or run[0]} "


@cache
def _combining_marks() -> re.Pattern[str]:
    marks = [chr(point) for point in range(0x300, 0x10000) if unicodedata.combining(chr(point))]
    return re.compile(f"[{''.join(marks)}]")


@cache
def _languages_by_word() -> dict[str, tuple[str, ...]]:
    languages: dict[str, tuple[str, ...]] = {}
    for language, words in STOP_WORDS.items():
        for word in words:
            languages[word] = (*languages.get(word, ()), language)
    return languages


@cache
def term_analyzer(language: str | None) -> TextAnalyzer:
    """Splits a text into terms and stems them. Accents are folded last, because stemmers need them."""
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    builder = TextAnalyzerBuilder(Tokenizer.simple())
    builder = builder.filter(Filter.remove_long(_MAX_TERM_BYTES)).filter(Filter.lowercase())
    if language is not None:
        builder = builder.filter(Filter.stemmer(language)).filter(Filter.ascii_fold())
    return builder.build()
