"""How many megabytes a second are searched for credentials, compared with ripgrep and the same patterns?

We read file by file from memory, as indexing does; ripgrep reads the same text in one file from the page cache, on one
thread, and starts a process for each run. It finds candidates only, and does not look at what their groups took.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.files.secret_patterns import DEFAULT_RULES
from measure import best_of_each, compared, report

RUNS = 3
GOAL_MB_PER_S = 100
RIPGREP = shutil.which("rg")
NEAR_MISS = b"\n    token = parser.next_token_from_stream(buffer)\n"


def main() -> None:
    library = Path(sysconfig.get_path("stdlib"))
    files = [
        file.read_bytes() for file in sorted(library.rglob("*.py")) if not {"site-packages", "test"} & set(file.parts)
    ]
    rows = [
        measured("Python's standard library", files, GOAL_MB_PER_S),
        measured(
            "the same, with a name that looks like a token in every file", [file + NEAR_MISS for file in files], None
        ),
    ]
    met = all((not row["goal"] or row["megabytes_per_cpu_second"] >= row["goal"]) and not row["found"] for row in rows)
    report("secret_scan", rows, f"at least {GOAL_MB_PER_S} MB/s of CPU on text without credentials", met)


def measured(case: str, files: list[bytes], goal: int | None) -> dict[str, Any]:
    exclusion = Exclusion()
    with tempfile.TemporaryDirectory() as directory:
        text, patterns = Path(directory) / "text", Path(directory) / "patterns"
        text.write_bytes(b"\n".join(files))
        patterns.write_text("".join(re.sub(r"\(\?P<\w+>", "(?:", rule.pattern) + "\n" for rule in DEFAULT_RULES))
        contenders = {"ours": lambda: ours(exclusion, files), "rg": lambda: ripgrep(patterns, text)}
        best = best_of_each(RUNS, contenders, children=True)
    speed = round(sum(map(len, files)) / 1e6 / best["ours"].cpu_s)
    return compared(
        case, best["ours"], best["rg"], goal=goal, megabytes_per_cpu_second=speed, found=ours(exclusion, files)
    )


def ours(exclusion: Exclusion, files: list[bytes]) -> int:
    return sum(len(exclusion.secrets_in(file)) for file in files)


def ripgrep(patterns: Path, file: Path) -> None:
    if RIPGREP is None:
        raise SystemExit("this benchmark compares with ripgrep; install rg")
    command = [RIPGREP, "--threads", "1", "--no-config", "--no-unicode", "--count", "--file", str(patterns), str(file)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    main()
