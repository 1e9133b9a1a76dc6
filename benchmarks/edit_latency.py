"""How long after a file is written does a search find what is new in it, by its words and by its meaning?

A real server with the local embedder on an indexed directory, edits one right after the other. Each edit rewrites a
file: a sentence that is searched for in words it does not have, so that only its vector can find it, and a name that
stands nowhere else. The peer is the notice of the change alone: watchfiles with the settings the server gives it, on a
directory of the same size. `--quick` takes a twentieth of the files.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from watchfiles import watch

from corpus_server import CorpusServer
from prose import Prose, write_documents
from trial import report, scaled

SEED = 35
FILES = 2000
CHARACTERS = 700
GOAL_S = 1.0
DEADLINE_S = 20.0
DEBOUNCE_MS = 120
STEP_MS = 40
NOTICE_MS = 250

SUBJECTS = {
    "The surgeon stitched the wound and gave her penicillin.": "doctor treating an injured patient with antibiotics",
    "Our striker scored twice before half-time.": "football match goals",
    "Knead the dough, let it rise, then bake the loaf.": "making bread at home",
    "Humpbacks migrate to warm seas and sing to their calves.": "whales and their young in the ocean",
    "The cello answers the violins in the slow movement.": "classical music orchestra",
    "Glaciers in the Alps lost a metre of ice last summer.": "climate warming melts mountains' snow",
    "The jury acquitted him of the burglary.": "court trial verdict of a thief",
    "Prune the roses in March and mulch the beds.": "gardening in spring with flowers",
    "Saturn is circled by rings of dust and frozen rubble.": "planets of the solar system",
    "The ferry to the island was cancelled by the gale.": "boat trip called off due to storm",
    "Grandmother knitted mittens out of grey wool.": "handmade gloves for winter",
    "The goalkeeper broke his wrist while skiing.": "athlete hurt during snow sports",
    "Voters chose a new mayor on Sunday.": "local election of a politician",
    "The vineyard bottles a dry white that smells of pear.": "wine tasting",
    "Bees dance to tell the hive where clover blooms.": "insects communicating about pollen",
    "The locomotive hauled forty wagons of coal.": "freight train on a railway",
    "A tenant must give three months' notice.": "ending the lease of an apartment",
    "The emperor's legions crossed the Rhine at night.": "ancient Roman army invading Germany",
    "She sacrificed her rook and mated in four moves.": "winning at chess",
    "The toddler has measles and a high fever.": "sick child with an infectious disease",
    "Interest on the mortgage went up to six percent.": "cost of a home loan from a bank",
    "The dentist pulled a molar under local anaesthetic.": "tooth extraction",
    "Camels carried salt across the dunes for weeks.": "desert caravan trade",
    "The sculptor carved a horse from a block of marble.": "artist making a stone statue of an animal",
    "Tie the knot, cast the line and wait for trout.": "fishing in a river",
    "The volcano covered the village in ash.": "eruption destroys a town",
    "Add cumin and chickpeas and simmer the curry.": "cooking an Indian vegetarian dish",
    "Tickets for the matinee of the opera are sold out.": "theatre performance with singers fully booked",
    "The plumber replaced the leaking pipe under the sink.": "repair of a water leak in the kitchen",
    "The puppy chewed the slippers and hid in its basket.": "young dog misbehaving in the house",
}


def main() -> None:
    files = scaled(FILES)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "root"
        write_documents(root, Prose(SEED), files, CHARACTERS)
        noticed_s = notices(root)
        print(f"indexing and embedding {files} files, then editing {len(SUBJECTS)} of them one after the other")
        with CorpusServer(root) as server:
            server.wait_until_indexed()
            words_s, meaning_s = edits(server, root)
    peer_p50_s = percentile(noticed_s, 0.5)
    rows = [row("found by a word", words_s, peer_p50_s), row("found by meaning", meaning_s, peer_p50_s)]
    rows.append(row("peer: notice of the change alone", noticed_s, peer_p50_s))
    met = all(percentile(taken_s, 0.95) < GOAL_S for taken_s in (words_s, meaning_s))
    report("edit_latency", rows, f"95 of 100 edits found in under {GOAL_S:g} s, by words and by meaning", met)


def edits(server: CorpusServer, root: Path) -> tuple[list[float], list[float]]:
    words_s: list[float] = []
    meaning_s: list[float] = []
    for (sentence, question), path in zip(SUBJECTS.items(), edited_files(root), strict=True):
        rel_path, name = path.relative_to(root).as_posix(), f"zanzibar{len(words_s)}quux"
        if found(server, name, rel_path) or found(server, question, rel_path):
            raise RuntimeError(f"{rel_path} is found before it is edited")
        content = f"{sentence}\n\n{name}\n"
        started = time.perf_counter()
        path.write_text(content)
        by_word_s = by_meaning_s = None
        while by_word_s is None or by_meaning_s is None:
            if by_word_s is None and found(server, name, rel_path):
                by_word_s = time.perf_counter() - started
            if by_meaning_s is None and found(server, question, rel_path):
                by_meaning_s = time.perf_counter() - started
            if time.perf_counter() - started > DEADLINE_S:
                raise TimeoutError(f"not found in {DEADLINE_S:g} s: {question if by_word_s else name}")
        words_s.append(by_word_s)
        meaning_s.append(by_meaning_s)
    return words_s, meaning_s


def edited_files(root: Path) -> list[Path]:
    every = sorted(path for path in root.rglob("note_*") if path.is_file())
    return every[:: len(every) // len(SUBJECTS)][: len(SUBJECTS)]


def found(server: CorpusServer, query: str, rel_path: str) -> bool:
    return any(hit["rel_path"] == rel_path for hit in server.search(query))


def notices(root: Path) -> list[float]:
    """Seconds from a write to the notice of it."""
    print(f"editing {len(SUBJECTS)} files with nobody but watchfiles listening")
    changes = watch(root, debounce=DEBOUNCE_MS, step=STEP_MS, rust_timeout=NOTICE_MS, yield_on_timeout=True)
    next(changes)
    taken: list[float] = []
    for path in edited_files(root):
        written_at: list[float] = []

        def write(path: Path = path, written_at: list[float] = written_at) -> None:
            written_at.append(time.perf_counter())
            path.write_text(path.read_text() + "\n")

        writer = threading.Timer(0.05, write)
        writer.start()
        while not any(os.fspath(path) == changed for _, changed in next(changes)):
            pass
        taken.append(time.perf_counter() - written_at[0])
        writer.join()
    changes.close()
    return taken


def row(case: str, taken_s: list[float], peer_p50_s: float) -> dict[str, Any]:
    p50_s = percentile(taken_s, 0.5)
    return {
        "case": case,
        "edits": len(taken_s),
        "p50_s": round(p50_s, 4),
        "p95_s": round(percentile(taken_s, 0.95), 4),
        "p50_ratio": round(p50_s / peer_p50_s, 2),
    }


def percentile(taken: list[float], share: float) -> float:
    return sorted(taken)[int((len(taken) - 1) * share + 0.5)]


if __name__ == "__main__":
    main()
