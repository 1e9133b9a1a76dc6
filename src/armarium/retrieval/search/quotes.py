"""Quotes of chunks: the sentences that match a question best, and the excerpts that fit into a prompt."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from armarium.retrieval.search.terms import language_of, stop_words_for

_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n{2,}|\n(?=\s*(?:[-*#>|]|\d+[.)]))")
_WORD = re.compile(r"\w+")
# ATX (`# title`) and setext (underlined) headings.
_HEADING = re.compile(r"^[ \t]*#{1,6}[ \t][^\n]*$|^[^\n]+\n[ \t]*(?:={3,}|-{3,})[ \t]*$", re.MULTILINE)
_CODE_BLOCK = re.compile(r"\s*^[ \t]*(```|~~~)[^\n]*\n?(.*?)(?:^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_TABLE_ROW = re.compile(r"\|.*\|")
_STEM_CHARS = 6
_MAX_SENTENCES = 5
_SENTENCES_PER_CHUNK = 2
_MAX_SENTENCE_CHARS = 400
_MIN_WORD_SHARE = 0.6
_MAX_CODE_LINES = 8
_MAX_QUOTED_LINES = 2


@dataclass(frozen=True, slots=True)
class Quotable:
    """The text of a chunk, and whether it is source code, which has no sentences."""

    text: str
    is_code: bool = False


def best_sentences(
    question: str, chunks: Sequence[Quotable], clean: Callable[[str], str] = lambda text: text
) -> list[tuple[int, str]]:
    """A few sentences, each with the position of its chunk, in the order of the chunks.

    `clean` removes text that must not be quoted, before sentences are truncated. Sentences without a word of the
    question are never selected, so the result may be empty.
    """
    ignored = stop_words_for(question, language_of(question))
    words = [word for word in _WORD.findall(question.lower()) if word not in ignored]
    asked = _stems(" ".join(words)) or _stems(question)
    sentences = [
        (place, sentence, _stems(sentence))
        for place, chunk in enumerate(chunks)
        for sentence in _sentences(chunk, clean)
    ]
    candidates = [candidate for candidate in sentences if candidate[2] & asked]
    frequency = Counter(stem for _, _, stems in candidates for stem in stems)

    def worth(candidate: tuple[int, str, set[str]]) -> float:
        place, _, stems = candidate
        # Rare stems count more; the order of the search breaks ties.
        return sum(1.0 / frequency[stem] ** 0.5 for stem in stems & asked) + 0.5 / (1 + place)

    chosen: list[tuple[int, str]] = []
    for place, sentence, _ in sorted(candidates, key=worth, reverse=True):
        if len(chosen) == _MAX_SENTENCES:
            break
        if sum(1 for other, _ in chosen if other == place) < _SENTENCES_PER_CHUNK:
            chosen.append((place, sentence))
    return sorted(chosen, key=lambda each: each[0])


def excerpts_within(max_chars: int, texts: Iterable[str]) -> list[str]:
    """The first of these texts that fit together, each followed by an empty line; at least the beginning of one."""
    excerpts: list[str] = []
    for text in texts:
        if len(text) > max_chars and excerpts:
            break
        excerpts.append(text[:max_chars])
        max_chars -= len(text) + len("\n\n")
    return excerpts


def _sentences(chunk: Quotable, clean: Callable[[str], str]) -> list[str]:
    if chunk.is_code:
        lines = [line for line in chunk.text.splitlines() if line.strip()][:_MAX_CODE_LINES]
        return ["`" + clean(" ".join(" ".join(lines).split()))[:_MAX_SENTENCE_CHARS] + "`"] if lines else []
    # A heading is not a sentence, and it separates sentences.
    prose = _HEADING.sub("\n\n", _CODE_BLOCK.sub(_quoted, chunk.text))
    parts = (clean(" ".join(part.split())) for part in _SENTENCE_END.split(prose))
    sentences = (_cells(part) if _TABLE_ROW.fullmatch(part) else part for part in parts)
    return [sentence[:_MAX_SENTENCE_CHARS] for sentence in sentences if _is_prose(sentence)]


def _quoted(block: re.Match[str]) -> str:
    """One or two commands are quoted with the sentence that introduces them; longer code blocks are dropped."""
    lines = [line.strip() for line in block[2].splitlines() if line.strip()]
    return f" `{' ; '.join(lines)}`\n\n" if 0 < len(lines) <= _MAX_QUOTED_LINES else "\n\n"


def _cells(row: str) -> str:
    """The cells of a table row, joined; the delimiter row below the header becomes empty."""
    cells = (cell.strip() for cell in row.strip("|").split("|"))
    return " · ".join(cell for cell in cells if cell.strip(":-"))


def _is_prose(text: str) -> bool:
    """Whether it consists of words, not of a rule or a drawing in characters."""
    visible = [character for character in text if not character.isspace()]
    words = sum(character.isalnum() for character in visible)
    return len(visible) > 2 and words >= _MIN_WORD_SHARE * len(visible)


def _stems(text: str) -> set[str]:
    """The prefixes of words, which approximate stems well enough in any language."""
    return {word.lower()[:_STEM_CHARS] for word in _WORD.findall(text) if len(word) > 2}
