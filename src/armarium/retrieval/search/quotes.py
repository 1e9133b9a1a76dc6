"""Chooses the sentences of passages that have most of a question in them: an answer in the passages' own words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from armarium.retrieval.search.terms import language_of, little_words

_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n{2,}|\n(?=\s*(?:[-*#>|]|\d+[.)]))")
_WORD = re.compile(r"\w+")
# A line that begins with number signs, or one that is underlined.
_HEADING = re.compile(r"^[ \t]*#{1,6}[ \t][^\n]*$|^[^\n]+\n[ \t]*(?:={3,}|-{3,})[ \t]*$", re.MULTILINE)
_CODE_BLOCK = re.compile(r"\s*^[ \t]*(```|~~~)[^\n]*\n?(.*?)(?:^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_TABLE_ROW = re.compile(r"\|.*\|")
_STEM_CHARS = 6
_MOST_SENTENCES = 5
_SENTENCES_PER_PASSAGE = 2
_LONGEST_SENTENCE = 400
_LEAST_SPOKEN = 0.6
_CODE_LINES = 8
_QUOTED_LINES = 2


@dataclass(frozen=True, slots=True)
class Quotable:
    """The text of a passage, and whether it is source code, which has no sentences."""

    text: str
    is_code: bool = False


def best_sentences(
    question: str, passages: Sequence[Quotable], clean: Callable[[str], str] = lambda text: text
) -> list[tuple[int, str]]:
    """A few sentences, each with the place of its passage, in the order of the passages.

    `clean` takes out what must not stand in a quotation, before it is cut to length. A sentence without a single word
    of the question is not an answer, however near its passage is: nothing is chosen then.
    """
    little = little_words(question, language_of(question))
    asked = _stems(" ".join(word for word in _WORD.findall(question.lower()) if word not in little)) or _stems(question)
    everything = [
        (place, sentence, _stems(sentence))
        for place, passage in enumerate(passages)
        for sentence in _sentences(passage, clean)
    ]
    candidates = [candidate for candidate in everything if candidate[2] & asked]
    rarity = Counter(stem for _, _, stems in candidates for stem in stems)

    def worth(candidate: tuple[int, str, set[str]]) -> float:
        place, _, stems = candidate
        # What few sentences have counts more; the search's own order decides between equals.
        return sum(1.0 / rarity[stem] ** 0.5 for stem in stems & asked) + 0.5 / (1 + place)

    chosen: list[tuple[int, str]] = []
    for place, sentence, _ in sorted(candidates, key=worth, reverse=True):
        if len(chosen) == _MOST_SENTENCES:
            break
        if sum(1 for other, _ in chosen if other == place) < _SENTENCES_PER_PASSAGE:
            chosen.append((place, sentence))
    return sorted(chosen, key=lambda each: each[0])


def _sentences(passage: Quotable, clean: Callable[[str], str]) -> list[str]:
    if passage.is_code:
        lines = [line for line in passage.text.splitlines() if line.strip()][:_CODE_LINES]
        return ["`" + clean(" ".join(" ".join(lines).split()))[:_LONGEST_SENTENCE] + "`"] if lines else []
    # A heading is no sentence, and ends one: what stands directly under it is not part of it.
    prose = _HEADING.sub("\n\n", _CODE_BLOCK.sub(_quoted, passage.text))
    parts = (clean(" ".join(part.split())) for part in _SENTENCE_END.split(prose))
    sentences = (_cells(part) if _TABLE_ROW.fullmatch(part) else part for part in parts)
    return [sentence[:_LONGEST_SENTENCE] for sentence in sentences if _is_spoken(sentence)]


def _quoted(block: re.Match[str]) -> str:
    """A command or two go with the sentence that announces them; more than that is no sentence."""
    lines = [line.strip() for line in block[2].splitlines() if line.strip()]
    return f" `{' ; '.join(lines)}`\n\n" if 0 < len(lines) <= _QUOTED_LINES else "\n\n"


def _cells(row: str) -> str:
    """A row of a table as one reads it aloud; the line below its head becomes nothing."""
    cells = (cell.strip() for cell in row.strip("|").split("|"))
    return " · ".join(cell for cell in cells if cell.strip(":-"))


def _is_spoken(text: str) -> bool:
    """Whether it is words: no rule, no drawing made of characters."""
    signs = [character for character in text if not character.isspace()]
    words = sum(character.isalnum() for character in signs)
    return len(signs) > 2 and words >= _LEAST_SPOKEN * len(signs)


def _stems(text: str) -> set[str]:
    """Words by how they begin, which is near enough for choosing sentences in any language."""
    return {word.lower()[:_STEM_CHARS] for word in _WORD.findall(text) if len(word) > 2}
