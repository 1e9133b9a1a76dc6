"""While another process swaps a directory for a link to the outside, nothing outside is ever opened or made."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import pytest

from armarium.foundation.files.confine import ConfinedRoot, Resolver
from armarium.foundation.files.errors import PathEscapesRoot

CALLS = 8000  # for each of six combinations: 48,000 in all
DEADLINE_S = 60

pytestmark = pytest.mark.alone

ATTACKER = """
import ctypes, os, select, sys
libc = ctypes.CDLL(None, use_errno=True)
root = os.open(sys.argv[1], os.O_PATH | os.O_DIRECTORY)
swaps = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(200):
        if libc.renameat2(root, b"dir", root, b"link", 2) != 0:
            sys.exit(os.strerror(ctypes.get_errno()))
        swaps += 1
    if swaps == 200:
        print("swapping", flush=True)
print(swaps)
"""


@contextmanager
def swapping(root: Path) -> Iterator[list[int]]:
    """Swap `dir` and `link` for as long as the block runs; afterwards the list holds how often."""
    swaps: list[int] = []
    command = [sys.executable, "-c", ATTACKER, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as attacker:
        assert attacker.stdout is not None
        try:
            assert attacker.stdout.readline() == "swapping\n"
            yield swaps
            output, _ = attacker.communicate(timeout=DEADLINE_S)
            swaps.append(int(output))
        finally:
            attacker.kill()


def read_file(root: ConfinedRoot, _: os.stat_result) -> bool:
    with root.opened_regular("dir/sub/file.txt") as (fd, _status):
        return os.read(fd, 100) == b"inside"


def create_file(root: ConfinedRoot, inside: os.stat_result) -> bool:
    with root.opened_parent("dir/sub/new.txt") as (fd, name):
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=fd))
        is_inside = os.path.samestat(os.fstat(fd), inside)
        if is_inside:  # Outside it stays, as evidence.
            os.unlink(name, dir_fd=fd)
        return is_inside


def create_directories(root: ConfinedRoot, inside: os.stat_result) -> bool:
    fd = root.make_directories("dir/sub/new/deep")
    try:
        is_inside = os.path.samestat(os.stat("../..", dir_fd=fd), inside)
        if is_inside:
            os.rmdir("../deep", dir_fd=fd)
    finally:
        os.close(fd)
    return is_inside


@pytest.mark.parametrize("resolver", get_args(Resolver))
@pytest.mark.parametrize("use", [read_file, create_file, create_directories])
def test_a_directory_swapped_for_a_link_out_never_leads_out(
    tmp_path: Path, resolver: Resolver, use: Callable[[ConfinedRoot, os.stat_result], bool]
) -> None:
    for place, content in (("root/dir", "inside"), ("outside", "outside")):
        (tmp_path / place / "sub").mkdir(parents=True)
        (tmp_path / place / "sub/file.txt").write_text(content)
    (tmp_path / "root/link").symlink_to(tmp_path / "outside")
    inside = (tmp_path / "root/dir/sub").stat()
    outcomes = Counter[str]()
    with ConfinedRoot(str(tmp_path / "root"), resolver=resolver) as root, swapping(tmp_path / "root") as swaps:
        deadline = time.monotonic() + DEADLINE_S
        while (outcomes.total() < CALLS or len(outcomes) < 2) and time.monotonic() < deadline:
            try:
                outcomes["inside" if use(root, inside) else "ESCAPED"] += 1
            except PathEscapesRoot:
                outcomes["refused"] += 1

    assert outcomes.keys() == {"inside", "refused"}
    assert outcomes.total() >= CALLS
    assert swaps[0] >= 400
    assert {str(path.relative_to(tmp_path / "outside")) for path in (tmp_path / "outside").rglob("*")} == {
        "sub",
        "sub/file.txt",
    }
