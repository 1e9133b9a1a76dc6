"""Output of the emulated models: vectors that are similar for shared words, answers that cite the prompt."""

from __future__ import annotations

import hashlib
import math
import re
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+")
_CITATION = re.compile(r"\[[^\[\]\n]+(?::L\d+-L\d+|#p=\d+|@t=[\d:]+-[\d:]+)\]")
INVENTED_CITATION = "[nowhere/invented.md:L1-L2]"
NOTHING_KNOWN = "The chunks do not say."
_MOST_CITED = 3
_EXCERPT_WORDS = 24


def words(text: str) -> list[str]:
    """The words of a text in lower case; the parts of an identifier are words."""
    return [word.lower() for word in _WORD.findall(text)]


@lru_cache(maxsize=65536)
def _places(word: str) -> tuple[int, int, int]:
    digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=9).digest()
    return (
        int.from_bytes(digest[:3], "big"),
        int.from_bytes(digest[3:6], "big"),
        int.from_bytes(digest[6:], "big"),
    )


def embedding(text: str, dimensions: int) -> list[float]:
    """A unit vector that depends on the words only."""
    vector = [0.0] * dimensions
    for word in words(text) or ["\0"]:
        for place in _places(word):
            vector[place % dimensions] += 1.0 if place & 0x800000 else -1.0
    length = math.sqrt(sum(value * value for value in vector))
    if not length:
        vector[0] = length = 1.0
    return [round(value / length, 6) for value in vector]


def relevance(query: str, text: str) -> float:
    """The share of the query's words that are in the text."""
    wanted = set(words(query))
    return len(wanted & set(words(text))) / len(wanted) if wanted else 0.0


def citations(prompt: str) -> list[str]:
    """The citations in a prompt, each once, in order."""
    return list(dict.fromkeys(_CITATION.findall(prompt)))


def answer(messages: list[dict[str, str]], *, invents: bool) -> str:
    """One sentence for each of the first citations in the prompt, from the text after it."""
    question = next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
    prompt = question if citations(question) else "\n".join(m["content"] for m in messages)
    sentences: list[str] = []
    for cited in citations(prompt)[:_MOST_CITED]:
        chunk = _CITATION.split(prompt.partition(cited)[2], maxsplit=1)[0]
        excerpt = " ".join(chunk.replace("[", "(").replace("]", ")").split()[:_EXCERPT_WORDS])
        sentences.append(f"It says: {excerpt} {cited}." if excerpt else f"It is there {cited}.")
    if invents:
        sentences.append(f"More is elsewhere {INVENTED_CITATION}.")
    return " ".join(sentences) or NOTHING_KNOWN
