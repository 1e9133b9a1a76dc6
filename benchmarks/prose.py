"""Generates prose: sentences from a Markov chain over Python's documentation, with invented rare words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

from source_tree import SourceWriter

SENTENCES = 30_000
FILES_PER_DIRECTORY = 50
_NAMED_SHARE = 0.04
"""The share of invented words, which occur in few sentences."""


class Prose:
    """Generates sentences, paragraphs and documents, reproducibly for a seed."""

    def __init__(self, seed: int) -> None:
        self._writer = SourceWriter(seed)
        self.random = self._writer.random
        words = [word for name in sorted(topics) for word in topics[name].split() if word.isalpha() and word.isascii()]
        self._after: dict[tuple[str, str], list[str]] = defaultdict(list)
        for one, two, three in zip(words, words[1:], words[2:], strict=False):
            self._after[one.lower(), two.lower()].append(three.lower())
        self._beginnings = sorted(self._after)
        self._sentences = [self._sentence() for _ in range(SENTENCES)]

    def paragraph(self, characters: int) -> str:
        """At least one sentence, and at most this many characters."""
        sentences: list[str] = []
        room = characters
        while (sentence := self.random.choice(self._sentences)) and (len(sentence) < room or not sentences):
            sentences.append(sentence)
            room -= len(sentence) + 1
        return " ".join(sentences)

    def document(self, characters: int, *, headings: bool) -> str:
        """Paragraphs of about this many characters in total, optionally with headings."""
        parts: list[str] = []
        size = 0
        while size < characters:
            if headings and len(parts) % 6 == 0:
                parts.append(f"## {self.question(4).capitalize()}")
            parts.append(self.paragraph(self.random.randint(200, 900)))
            size += len(parts[-1]) + 2
        return "\n\n".join(parts) + "\n"

    def question(self, words: int) -> str:
        """Consecutive words of a sentence."""
        sentence = self.random.choice(self._sentences).lower().rstrip(".").split()
        start = self.random.randint(0, max(0, len(sentence) - words))
        return " ".join(sentence[start : start + words])

    def _sentence(self) -> str:
        one, two = self.random.choice(self._beginnings)
        sentence = [one, two]
        for _ in range(self.random.randint(6, 18)):
            if not (next_words := self._after.get((one, two))):
                break
            one, two = two, self.random.choice(next_words)
            sentence.append(self._writer.word() if self.random.random() < _NAMED_SHARE else two)
        return " ".join(sentence).capitalize() + "."


def paths(top: Path, files: int, suffixes: tuple[str, ...] = ("md", "txt")) -> Iterator[Path]:
    """The paths of this many files, fifty per directory. Creates the directories."""
    for number in range(files):
        folder = number // FILES_PER_DIRECTORY
        directory = top / f"part_{folder % 10}" / f"chapter_{folder:04}"
        if number % FILES_PER_DIRECTORY == 0:
            directory.mkdir(parents=True, exist_ok=True)
        yield directory / f"note_{number:06}.{suffixes[number % len(suffixes)]}"


def write_documents(top: Path, prose: Prose, files: int, characters: int) -> int:
    """Fill a directory with documents, half of them with headings. Returns the number of bytes."""
    return sum(
        path.write_bytes(prose.document(characters, headings=path.suffix == ".md").encode())
        for path in paths(top, files)
    )
