"""How fast is the chunker on one core, for each structure of text?

The peer for code is the parser alone; the peer for other text is a split at blank lines, without headings, size limits
and line numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from armarium.retrieval.chunker.document import chunk_document
from armarium.retrieval.chunker.grammars import parser_for
from armarium.retrieval.chunks import ChunkLimits, ExtractedText, Structure
from measure import best_of_each, compared, report
from source_tree import SourceWriter

SEED = 20
FILES = 40
FILE_CHARS = 40_000
RUNS = 3
TEXT_GOAL_MB_S = 30
CODE_GOAL_MB_S = 8
Writer = SourceWriter


def prose(writer: Writer) -> str:
    sentences = (" ".join(writer.word() for _ in range(writer.random.randint(5, 20))) + "." for _ in range(6))
    return " ".join(sentences).capitalize() + "\n\n"


def markdown(writer: Writer) -> str:
    level = writer.random.choice((1, 2, 2, 3, 3))
    items = "".join(f"- {writer.word()} {writer.word()}\n" for _ in range(writer.random.randint(0, 6)))
    return f"{'#' * level} {writer.word()} {writer.word()}\n\n{prose(writer)}{items}\n"


def rows(writer: Writer) -> str:
    return ",".join(writer.word() for _ in range(8)) + "\n"


def python(writer: Writer) -> str:
    name = writer.word
    methods = "".join(
        f'    def {name()}(self, {name()}):\n        """{prose(writer).strip()[:100]}"""\n'
        + "".join(
            f"        {name()}_ = self.{name()}_.{name()}_({name()}_, '{name()}')\n"
            for _ in range(writer.random.randint(2, 15))
        )
        + "\n"
        for _ in range(writer.random.randint(1, 8))
    )
    return f"class {name().capitalize()}:\n{methods}\n"


def c_like(writer: Writer, keyword: str) -> str:
    name = writer.word
    statements = "".join(
        f'    x_{name()}(y_{name()}, "{name()}", {writer.random.randint(0, 99)});\n'
        for _ in range(writer.random.randint(3, 25))
    )
    return f"// {name()} {name()}\n{keyword} f_{name()}(int x_{name()}) {{\n{statements}}}\n\n"


CASES: dict[str, tuple[Structure, str | None, Callable[[Writer], str]]] = {
    "plain": ("plain", None, prose),
    "markdown": ("markdown", None, markdown),
    "rows": ("rows", None, rows),
    "python": ("code", "python", python),
    "c": ("code", "c", lambda writer: c_like(writer, "int")),
    "java": ("code", "java", lambda writer: c_like(writer, "int")),
    "code without a grammar": ("code", None, python),
}


def texts(make: Callable[[Writer], str]) -> list[str]:
    writer = SourceWriter(SEED)
    made: list[str] = []
    for _ in range(FILES):
        parts: list[str] = []
        missing = FILE_CHARS
        while missing > 0:
            parts.append(make(writer))
            missing -= len(parts[-1])
        made.append("".join(parts))
    return made


def measured(case: str) -> dict[str, Any]:
    structure, language, make = CASES[case]
    documents = [ExtractedText(text, structure, language) for text in texts(make)]
    limits = ChunkLimits()

    def ours() -> None:
        for document in documents:
            chunk_document(document, limits)

    def peer() -> None:
        for document in documents:
            if language:
                parser_for(language).parse(document.text.encode())
            else:
                document.text.split("\n\n")

    costs = best_of_each(RUNS, {"ours": ours, "peer": peer})
    megabytes = sum(len(document.text) for document in documents) / 1e6
    return compared(case, costs["ours"], costs["peer"], mb_per_cpu_second=round(megabytes / costs["ours"].cpu_s, 1))


def main() -> None:
    figures = [measured(case) for case in CASES]
    met = all(
        row["mb_per_cpu_second"] >= (CODE_GOAL_MB_S if CASES[row["case"]][0] == "code" else TEXT_GOAL_MB_S)
        for row in figures
    )
    report(
        "chunking_speed",
        figures,
        f"at least {TEXT_GOAL_MB_S} MB of text or {CODE_GOAL_MB_S} MB of code per second of CPU",
        met,
    )


if __name__ == "__main__":
    main()
