"""Decides which index a query is for: prose, code, or both."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

from armarium.retrieval.passages import IndexKind

IndexChoice = Literal["auto", "text", "code", "both"]

# A name as programs write it: snake_case, lowerCamel, a call, a path of names. Not PascalCase, which brands use too.
_COMPOUND_NAME = re.compile(r"\b[A-Za-z]\w*?[A-Za-z0-9]_[A-Za-z0-9]\w*|\b[a-z]{2,}[A-Z][a-z]\w*")
_PROGRAM_NAME = re.compile(_COMPOUND_NAME.pattern + r"|\b[A-Za-z_]\w*\(|\b\w+::\w+|\b[a-z_]\w+\.[a-z_]\w*\(")
_CODE_MARKS = re.compile(r"[{};]\s*$|=>|->|==|!=|&&|\|\||\bself\.|</?\w+>|#include|\w+\[\w*\]\s*=", re.MULTILINE)
_CODE_WORDS = re.compile(
    r"\b(?:python[23]?|javascript|typescript|java|golang|kotlin|php|sql|regex|regexp|stdlib|stacktrace|traceback|"
    r"numpy|pandas|django|flask|nodejs|c\+\+|c#)(?!\w)|"
    r"\b(?:implement(?:s|ed|ation)?|defin(?:e|es|ed|ition)|call(?:s|ed|er)?|overrid\w+|refactor\w*|import(?:s|ed)?|"
    r"instantiat\w+|subclass\w*|deprecat\w+) (?:\w+ ){0,3}"
    r"(?:function|method|class|module|struct|interface|enum|decorator|constructor|handler|endpoint|variable)s?\b|"
    r"\b(?:function|struct|decorator|constructor)s? (?:that|which|returning|returns?|takes|taking|named|called)\b|"
    r"\b(?:def|async def|fn|func|lambda|const|import|from \w+ import|public static) \w+ ?[(=:.;]|"
    r"\b(?:source code|code for|code that|unit tests?|null pointer|return type|type hints?|for loop|while loop)\b|"
    r"\.(?:py|js|ts|tsx|jsx|go|rs|java|cpp|hpp|cc|rb|php|cs|kt|scala|sh)\b",
    re.IGNORECASE,
)


# How lines of programs begin or end, and sentences do not.
_CODE_LINE = re.compile(
    r"^\s*(?:def |class |fn |func |import |from \S+ import|return\b|if \(|for \(|\w+ = |self\.|public |private |"
    r"static |const |let |var |#include|package |@\w+|\}|\))|[{};:,(]\s*$|\w\(.*\)\s*$",
)
_CODE_LINES_FROM = 0.4


def looks_like_code(text: str) -> bool:
    """Whether a text whose name says nothing is a piece of a program."""
    lines = [line for line in text.splitlines() if line.strip()]
    found = sum(_CODE_LINE.search(line) is not None for line in lines)
    return len(lines) > 1 and found >= _CODE_LINES_FROM * len(lines)


def names_something(query: str) -> bool:
    """Whether the query writes out a name as programs do, which is found by its letters."""
    return _PROGRAM_NAME.search(query) is not None


def is_code_query(query: str) -> bool:
    """Whether the query is about code: it names something in it, looks like it, or speaks of it."""
    return names_something(query) or any(pattern.search(query) for pattern in (_CODE_MARKS, _CODE_WORDS))


def compound_names(query: str) -> str:
    """The names of several words that the query writes as one, each as the one word the word index has it as.

    Their parts say little about where they stand: many programs have a `fit`, few have a `fit_tide`.
    """
    return " ".join(name[0].replace("_", "").lower() for name in _COMPOUND_NAME.finditer(query))


def indexes_for(
    query: str, choice: IndexChoice, *, targets_code: bool, available: Collection[IndexKind]
) -> tuple[IndexKind, ...]:
    """The indexes to search. With `auto`, code when the query or its filters are about code, and never an empty one."""
    if choice == "both":
        return ("text", "code")
    if choice != "auto":
        return (choice,)
    wanted: IndexKind = "code" if targets_code or is_code_query(query) else "text"
    other: IndexKind = "text" if wanted == "code" else "code"
    return (other,) if wanted not in available and other in available else (wanted,)
