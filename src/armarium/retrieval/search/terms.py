"""Turns text and queries into the words the index knows: identifiers split, scripts without spaces cut in pairs."""

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
_MINIMUM_LITTLE_WORDS = 3
_ENGLISH_BEYOND_DOUBT = 0.25
_NAMES_REMEMBERED = 40_000
_LONGEST_REMEMBERED_BYTES = 64
_LONGEST_WORD_BYTES = 64

# Most prose has no identifier, and RE2 says so in 6 ms for a megabyte, where `re` takes 100.
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
    """The text, or a query, as the word index takes it.

    After the text stand the parts of `getUserName` and the whole of `get_user_name`: the tokenizer keeps the one
    together and takes the other apart, and each is to be found by "user name" and by the other.
    """
    if not text.isascii():
        text = _plain_script(text)
    encoded = text.encode("utf-8", "replace")
    if _ANY_COMPOUND.search(encoded) is None:
        return text
    names = encoded.translate(_OTHERS_TO_SPACES).split()
    more = b" ".join(filter(None, map(_OTHER_SPELLINGS.__getitem__, names)))
    return f"{text}\n{more.decode('ascii')}"


class _OtherSpellings(dict[bytes, bytes]):
    """What else a name is indexed as. The same names come again and again: this takes half the time of `lru_cache`."""

    def __missing__(self, name: bytes) -> bytes:
        if len(self) >= _NAMES_REMEMBERED:
            self.clear()
        spellings: list[bytes] = []
        if b"_" in name and b"_" in (inner := name.strip(b"_")):
            spellings.append(inner.replace(b"_", b""))
        if not name.islower() and not name.isupper() and _HUMP.search(name):
            spellings.append(_HUMP.sub(b" ", name))
        found = b" ".join(spellings)
        if len(name) <= _LONGEST_REMEMBERED_BYTES:
            self[name] = found
        return found


_OTHER_SPELLINGS = _OtherSpellings()


def is_lone_character(word: str) -> bool:
    """Whether a word is one character of a script that is indexed in pairs, so that no pair equals it."""
    return len(word) == 1 and _UNSPACED_RUN.match(word) is not None


def language_of(text: str) -> str:
    """The language whose little words the text is full of; English where none is, as for code and lists of names."""
    words = text[:_LANGUAGE_SAMPLE_CHARACTERS].lower().split()
    if sum(map(STOP_WORDS["english"].__contains__, words)) > _ENGLISH_BEYOND_DOUBT * len(words):
        return "english"
    languages = _languages_by_word()
    votes = Counter(chain.from_iterable(languages[word] for word in words if word in languages))
    if not votes:
        return "english"
    language, count = votes.most_common(1)[0]
    return language if count >= _MINIMUM_LITTLE_WORDS and count > votes["english"] else "english"


def little_words(query: str, language: str) -> frozenset[str]:
    """What a query for texts in `language` does without: the little words of that language and of the query's own."""
    return STOP_WORDS[language] | STOP_WORDS[language_of(query)]


def _plain_script(text: str) -> str:
    # NFKC: ligatures from PDFs, full-width letters. Marks that combine with a letter end a word for the tokenizer,
    # which would cut Hindi words in pieces, so they go; vowel signs are letters to it and stay.
    text = _combining_marks().sub("", unicodedata.normalize("NFKC", text))
    return _UNSPACED_RUN.sub(_pairs, text)


def _pairs(run: re.Match[str]) -> str:
    characters = run[0]
    if len(characters) == 1:
        return f" {characters} "
    return f" {' '.join(map(''.join, pairwise(characters)))} "


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
def word_analyzer(language: str | None) -> TextAnalyzer:
    """How words are cut out of a text, and their endings stripped; accents last, since stemmers look at them."""
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    builder = TextAnalyzerBuilder(Tokenizer.simple())
    builder = builder.filter(Filter.remove_long(_LONGEST_WORD_BYTES)).filter(Filter.lowercase())
    if language is not None:
        builder = builder.filter(Filter.stemmer(language)).filter(Filter.ascii_fold())
    return builder.build()
