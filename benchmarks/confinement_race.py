"""Does a path ever lead outside its root while another process swaps a directory for a link?

A child process exchanges a directory with a link to the outside as fast as it can (RENAME_EXCHANGE) while the same
paths are opened in three ways: ours with openat2, ours with the walk for older kernels, and, as the peer, the usual
"resolve the real path, compare it with the root, open it".
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from armarium.foundation.files.confine import ConfinedRoot
from armarium.foundation.files.errors import PathEscapesRoot
from measure import cost_of, report

OPENS = 500_000
CANARY = b"OUTSIDE"

ATTACK = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
ours, link = (os.fsencode(path) for path in sys.argv[1:])
while True:
    libc.renameat2(-100, ours, -100, link, 2)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, swapping(Path(directory)) as root:
        contenders: dict[str, Callable[[str], int]] = {
            "ours, openat2": opener(ConfinedRoot(str(root), resolver="openat2")),
            "ours, component walk": opener(ConfinedRoot(str(root), resolver="walk")),
            "peer: realpath, compare, open": realpath_then_open(str(root)),
        }
        rows = [raced(name, open_path) for name, open_path in contenders.items()]
    ours = [row for row in rows if row["case"].startswith("ours")]
    report("confinement_race", rows, f"no escape in {OPENS:,} opens", all(row["escaped"] == 0 for row in ours))


def opener(root: ConfinedRoot) -> Callable[[str], int]:
    return lambda path: root.open(path, os.O_RDONLY)


def realpath_then_open(root: str) -> Callable[[str], int]:
    def open_path(path: str) -> int:
        real = os.path.realpath(os.path.join(root, path))
        if not real.startswith(root + os.sep):
            raise PathEscapesRoot(path)
        return os.open(real, os.O_RDONLY)

    return open_path


def raced(name: str, open_path: Callable[[str], int]) -> dict[str, Any]:
    counts = {"inside": 0, "refused": 0, "missing": 0, "escaped": 0}

    def race() -> None:
        for _ in range(OPENS):
            counts[outcome(open_path)] += 1

    cost = cost_of(race)
    return {"case": name, "opens": OPENS, **counts, "cpu_s": round(cost.cpu_s, 2)}


def outcome(open_path: Callable[[str], int]) -> str:
    try:
        fd = open_path("d/sub/file.txt")
    except PathEscapesRoot:
        return "refused"
    except OSError:
        return "missing"
    try:
        return "escaped" if os.read(fd, 16) == CANARY else "inside"
    finally:
        os.close(fd)


@contextmanager
def swapping(base: Path) -> Iterator[Path]:
    base = base.resolve()
    for place, content in (("root/d", b"INSIDE"), ("outside", CANARY)):
        (base / place / "sub").mkdir(parents=True)
        (base / place / "sub" / "file.txt").write_bytes(content)
    (base / "root" / "link").symlink_to(base / "outside")
    attacker = subprocess.Popen([sys.executable, "-c", ATTACK, str(base / "root/d"), str(base / "root/link")])
    try:
        yield base / "root"
    finally:
        attacker.kill()
        attacker.wait()


if __name__ == "__main__":
    main()
