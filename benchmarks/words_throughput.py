"""How much does our word index cost over tantivy alone?

The peer is tantivy with the same analyzer, writer and number of threads, fed the same passages as they are: no
identifiers split, no languages told apart, no title.
"""

from __future__ import annotations

import json
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import tantivy

from armarium.retrieval.lexical import WordIndex, WordPassage
from armarium.retrieval.passages import IndexKind
from measure import best_of_each, compared, report

SETS = Path(__file__).parent.parent.parent / "shared" / "data" / "retrieval"
CHUNK_CHARACTERS = 2000
MEGABYTES = 16
ROUNDS = 3
WANTED_MB_PER_S = 8.0
HEAP_BYTES = 24_000_000


def main() -> None:
    cases: list[tuple[str, IndexKind, list[str]]] = [("code", "code", passages(source_files()))]
    if SETS.is_dir():
        cases.insert(0, ("prose", "text", passages(judged_documents())))
    else:
        print("shared/data/retrieval is not there: prose is skipped")
    rows = [measure(name, kind, texts) for name, kind, texts in cases]
    met = all(row["ours_mb_a_second"] >= WANTED_MB_PER_S for row in rows)
    report("words_throughput", rows, f"{WANTED_MB_PER_S:g} MB/s of wall time", met)


def measure(name: str, kind: IndexKind, texts: list[str]) -> dict[str, Any]:
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    costs = best_of_each(ROUNDS, {"ours": lambda: index_ours(kind, texts), "peer": lambda: index_bare(texts)})
    return compared(
        f"{name}, {megabytes:.1f} MB in {len(texts)} passages",
        costs["ours"],
        costs["peer"],
        ours_mb_a_second=round(megabytes / costs["ours"].wall_s, 1),
        ours_mb_a_cpu_second=round(megabytes / costs["ours"].cpu_s, 1),
        peer_mb_a_cpu_second=round(megabytes / costs["peer"].cpu_s, 1),
    )


def index_ours(kind: IndexKind, texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        index = WordIndex.open(Path(directory) / "words")
        index.add(WordPassage(number, number, kind, "notes a txt", "", text) for number, text in enumerate(texts))
        index.commit()
        index.close()


def index_bare(texts: list[str]) -> None:
    schema = tantivy.SchemaBuilder().add_integer_field("chunk", indexed=True, fast=True)
    schema = schema.add_text_field("body", tokenizer_name="words", index_option="freq").build()
    analyzer = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    for step in (
        tantivy.Filter.remove_long(64),
        tantivy.Filter.lowercase(),
        tantivy.Filter.stemmer("english"),
        tantivy.Filter.ascii_fold(),
    ):
        analyzer = analyzer.filter(step)
    with tempfile.TemporaryDirectory() as directory:
        index = tantivy.Index(schema, path=directory)
        index.register_tokenizer("words", analyzer.build())
        writer = index.writer(HEAP_BYTES, num_threads=1)
        for number, text in enumerate(texts):
            writer.add_document(tantivy.Document(chunk=number, body=text))
        writer.commit()


def passages(texts: list[str]) -> list[str]:
    cut = [text[start : start + CHUNK_CHARACTERS] for text in texts for start in range(0, len(text), CHUNK_CHARACTERS)]
    size = sum(map(len, cut))
    repeated = cut * (MEGABYTES * 1_000_000 // size + 1)
    return repeated[: MEGABYTES * 1_000_000 * len(cut) // size]


def judged_documents() -> list[str]:
    """Documents of the sets, joined to the length that files have."""
    texts = [
        json.loads(line)["text"]
        for name in ("cisi", "cranfield", "xquad-en")
        for line in (SETS / name / "docs.jsonl").read_text().splitlines()
    ]
    return ["\n\n".join(texts[start : start + 20]) for start in range(0, len(texts), 20)]


def source_files() -> list[str]:
    """The standard library, as every Python has it."""
    return [path.read_text(errors="replace") for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))]


if __name__ == "__main__":
    main()
