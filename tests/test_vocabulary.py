"""The source and the documentation use the terms of docs/glossary.md, and no word that it retired."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
SOURCE = REPOSITORY / "src/armarium"
GLOSSARY = REPOSITORY / "docs/glossary.md"

# Other meanings of a retired word, each with the pattern of its use. Contract terms are in the glossary.
OTHER_MEANINGS = (
    r"\bpulse=",  # an argument of rich's progress bar
    r"\bchanges news todo\b",  # names of files, among them NEWS
    r"\bdie dit door een\b",  # Dutch stop words
    r"\bdecisions/[\w-]+\.md",  # file names of decisions, which stay as they are
    r"\bpassages_tally\b",  # a key stored on disk
    r"https?://\S+",
)
# Words that the files of a kind may use, each with the reason.
EXEMPT_BY_SUFFIX = {
    ".sql": r"\bpassages\b",  # the name of a column
    ".ts": r"(?i:passages?)",  # what people read in the console; see the glossary
    ".svelte": r"(?i:passages?)",
}
# Nouns in -ing that are established or that a contract fixes. Classes and modules may end in them.
NOUNS = frozenset(
    {
        "embedding",
        "everything",
        "finding",
        "keyring",
        "listing",
        "missing",
        "nothing",
        "ranking",
        "remaining",
        "string",
        "warning",
    }
)

_WORD_OF_IDENTIFIER = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_INFLECTION = r"(?:s|es|d|ed|ing)?"


def retired_words(glossary: str) -> list[str]:
    """The last column of the glossary's table of terms."""
    rows = re.findall(r"^\|(.+)\|$", glossary.partition("## Words that a contract fixes")[0], re.MULTILINE)
    cells = [row.split("|")[-1].strip() for row in rows[2:]]
    return [word.strip().lower() for cell in cells for word in cell.split(",") if word.strip()]


def contract_terms(glossary: str) -> list[str]:
    return re.findall(r"`([^`]+)`", glossary.partition("## Words that a contract fixes")[2])


def words_of(text: str) -> str:
    """The text as lower-case words, with identifiers split: `ringBell` and `ring_bell` become `ring bell`."""
    return " ".join(word.lower() for word in _WORD_OF_IDENTIFIER.findall(text))


def found_in(text: str, retired: list[str], exempt: list[str]) -> Iterator[tuple[int, str]]:
    """Line numbers and the retired words in them. A phrase may continue on the next line."""
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, retired))}){_INFLECTION}\b")
    exemptions = re.compile("|".join([*OTHER_MEANINGS, *map(re.escape, exempt)]))
    lines = [words_of(exemptions.sub(" ", line)) for line in text.splitlines()]
    for number, line in enumerate(lines, start=1):
        following = lines[number].split()[:2] if number < len(lines) else []
        together = " ".join([line, *following])
        for match in pattern.finditer(together):
            if match.start() < len(line):
                yield number, match[0]


def checked_files() -> list[Path]:
    # Migrations keep the words of their time.
    queries = [file for file in SOURCE.rglob("*.sql") if "migrations" not in file.parts]
    console = [file for file in (REPOSITORY / "web/src").rglob("*") if file.suffix in (".ts", ".svelte")]
    scripts = [
        file for file in (REPOSITORY / "scripts").rglob("*") if file.is_file() and "__pycache__" not in file.parts
    ]
    pages = [page for page in (REPOSITORY / "docs").rglob("*.md") if "decisions" not in page.parts and page != GLOSSARY]
    return [
        *sorted(SOURCE.rglob("*.py")),
        *sorted(queries),
        *sorted(console),
        *sorted(scripts),
        *sorted(pages),
        *sorted((REPOSITORY / ".agent_docs").glob("*.md")),
        *sorted(REPOSITORY.glob("*.md")),
    ]


def test_no_retired_word_is_in_the_source_or_the_documentation() -> None:
    glossary = GLOSSARY.read_text(encoding="utf-8")
    retired, exempt = retired_words(glossary), contract_terms(glossary)
    found = list[str]()
    for file in checked_files():
        path = file.relative_to(REPOSITORY)
        exemption = re.compile(EXEMPT_BY_SUFFIX.get(file.suffix, r"(?!)"))
        name, text = words_of(exemption.sub("", file.stem)), exemption.sub("", file.read_text("utf-8"))
        found += [f"{path}: the name has '{word}'" for word in retired if re.search(rf"\b{re.escape(word)}\b", name)]
        found += [f"{path}:{line}: {word}" for line, word in found_in(text, retired, exempt)]
    assert not found, f"{len(found)} retired words; see docs/glossary.md:\n" + "\n".join(found)


def test_no_class_and_no_module_is_named_by_a_verb_form_in_ing() -> None:
    found = list[str]()
    for file in sorted(SOURCE.rglob("*.py")):
        path = file.relative_to(REPOSITORY)
        if is_verb_form(file.stem):
            found.append(f"{path}: module {file.stem}")
        tree = ast.parse(file.read_text(encoding="utf-8"))
        found += [
            f"{path}:{node.lineno}: class {node.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and is_verb_form(node.name)
        ]
    assert not found, "name things with nouns:\n" + "\n".join(found)


def is_verb_form(name: str) -> bool:
    last = words_of(name).rpartition(" ")[2]
    return last.endswith("ing") and last not in NOUNS


def test_every_module_and_every_package_says_what_it_is_responsible_for() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    without = [file for file in files if not ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))]
    assert [str(file.relative_to(REPOSITORY)) for file in without] == []


def test_the_glossary_retires_words_and_lists_terms_of_contracts() -> None:
    glossary = GLOSSARY.read_text(encoding="utf-8")
    assert {"passage", "half a character", "shelf"} <= set(retired_words(glossary))
    assert "server_registry_updated" in contract_terms(glossary)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def ring_bell() -> None:", ["ring", "bell"]),
        ("class WordPassages:", ["passages"]),
        ("HTTPPulse", ["pulse"]),
        ("string = keyring.wiring(lifetime, lifespan)", []),
        ("a text with half a\n    character", ["half a character"]),
        ("bar.update(pulse=True)  # pulse", ["pulse"]),
        ("see [why](../decisions/0042-open-file-takes-a-passages-id.md)", []),
        ("`the_contracts_door` is fixed", []),
    ],
)
def test_words_are_found_in_names_and_in_prose(text: str, words: list[str]) -> None:
    retired = ["ring", "bell", "passage", "pulse", "life", "half a character", "door"]
    assert [word for _, word in found_in(text, retired, ["the_contracts_door"])] == words


@pytest.mark.parametrize(
    ("name", "verb"),
    [("Searching", True), ("_Reading", True), ("leading", True), ("ScannerFinding", False), ("Settings", False)],
)
def test_verb_forms_are_told_from_nouns(name: str, verb: bool) -> None:
    assert is_verb_form(name) is verb
