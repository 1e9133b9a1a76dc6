"""A thread under Landlock can access only its directories. Each case runs in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from armarium.foundation.files import landlock
from armarium.foundation.files.landlock import handled_rights, python_read_paths, restrict_current_thread

needs_landlock = pytest.mark.skipif(landlock.supported_abi() == 0, reason="this kernel has no Landlock")

# Names the error of every attempt, or "ok"; `attempts` may run in whichever thread is in question.
PROBE = """
import errno, json, os, sys, threading
from armarium.foundation.files.landlock import python_read_paths, restrict_current_thread

base = sys.argv[1]
root, library, outside = (f"{base}/{name}" for name in ("root", "library", "outside"))
answers = {}

def attempt(name, action):
    try:
        action()
        answers[name] = "ok"
    except OSError as error:
        answers[name] = errno.errorcode[error.errno]

def read(path):
    with open(path) as file:
        file.read()

def write(path, mode="w"):
    with open(path, mode) as file:
        file.write("new")

def restrict():
    answers["restricted"] = restrict_current_thread([root], [library, f"{base}/missing", *python_read_paths()])
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for name in ("root", "root/inner", "library", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file.txt").write_text("old")
    (tmp_path / "root/exit").symlink_to(tmp_path / "outside/file.txt")
    return tmp_path


def answers_of(base: Path, script: str) -> dict[str, object]:
    result = subprocess.run(
        [sys.executable, "-c", f"{PROBE}\n{script}\nprint(json.dumps(answers))", str(base)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@needs_landlock
def test_inside_everything_a_sandbox_does_still_works(base: Path) -> None:
    answers = answers_of(
        base,
        """
restrict()
attempt("read", lambda: read(f"{root}/file.txt"))
attempt("list", lambda: os.listdir(root))
attempt("overwrite", lambda: write(f"{root}/file.txt"))
attempt("append", lambda: write(f"{root}/file.txt", "a"))
attempt("truncate", lambda: os.truncate(f"{root}/file.txt", 1))
attempt("create", lambda: write(f"{root}/new.txt", "x"))
attempt("make directory", lambda: os.mkdir(f"{root}/made"))
attempt("link", lambda: os.symlink("file.txt", f"{root}/link"))
attempt("rename", lambda: os.rename(f"{root}/new.txt", f"{root}/renamed.txt"))
attempt("remove", lambda: os.unlink(f"{root}/renamed.txt"))
attempt("remove directory", lambda: os.rmdir(f"{root}/made"))
""",
    )
    assert answers.pop("restricted") is True
    assert set(answers.values()) == {"ok"}, answers


@needs_landlock
@pytest.mark.skipif(landlock.supported_abi() < 2, reason="Landlock 1 cannot allow renames between directories")
def test_inside_a_file_moves_between_directories(base: Path) -> None:
    answers = answers_of(
        base, 'restrict(); attempt("move", lambda: os.rename(f"{root}/file.txt", f"{root}/inner/moved.txt"))'
    )
    assert answers["move"] == "ok"


@needs_landlock
def test_outside_nothing_can_be_read_or_written(base: Path) -> None:
    answers = answers_of(
        base,
        """
restrict()
attempt("read", lambda: read(f"{outside}/file.txt"))
attempt("read through a link", lambda: read(f"{root}/exit"))
attempt("list", lambda: os.listdir(outside))
attempt("write", lambda: write(f"{outside}/file.txt"))
attempt("create", lambda: write(f"{outside}/new.txt", "x"))
attempt("make directory", lambda: os.mkdir(f"{outside}/made"))
attempt("remove", lambda: os.unlink(f"{outside}/file.txt"))
attempt("write what may be read", lambda: write(f"{library}/file.txt"))
attempt("create where may be read", lambda: write(f"{library}/new.txt", "x"))
""",
    )
    assert answers.pop("restricted") is True
    assert set(answers.values()) == {"EACCES"}, answers
    assert (base / "outside/file.txt").read_text() == "old"
    assert os.listdir(base / "outside") == ["file.txt"]


@needs_landlock
def test_what_is_read_only_can_be_read_and_python_still_imports(base: Path) -> None:
    answers = answers_of(
        base,
        """
restrict()
attempt("read", lambda: read(f"{library}/file.txt"))
attempt("list", lambda: os.listdir(library))
attempt("where", lambda: os.readlink("/proc/self/fd/0"))
import csv, pwd, sqlite3, ssl, zoneinfo
attempt("user", lambda: pwd.getpwuid(os.getuid()))
attempt("certificates", ssl.create_default_context)
""",
    )
    assert answers.pop("restricted") is True
    assert set(answers.values()) == {"ok"}, answers


@needs_landlock
def test_nothing_is_executed_and_no_device_is_made(base: Path) -> None:
    (base / "root/tool").write_text("#!/bin/sh\n")
    (base / "root/tool").chmod(0o755)
    answers = answers_of(
        base,
        """
restrict()
attempt("own program", lambda: os.execv(f"{root}/tool", ["tool"]))
attempt("system program", lambda: os.execv(sys.executable, [sys.executable]))
attempt("device", lambda: os.mknod(f"{root}/null", 0o020600, os.makedev(1, 3)))
""",
    )
    assert answers["own program"] == answers["system program"] == "EACCES"
    assert answers["device"] in ("EACCES", "EPERM")


@needs_landlock
def test_it_holds_for_the_thread_and_those_it_starts_but_not_for_the_others(base: Path) -> None:
    answers = answers_of(
        base,
        """
def run(target):
    thread = threading.Thread(target=target)
    thread.start()
    thread.join()

def confined():
    restrict()
    attempt("own thread", lambda: read(f"{outside}/file.txt"))
    attempt("own thread inside", lambda: read(f"{root}/file.txt"))
    run(lambda: attempt("thread started by it", lambda: write(f"{outside}/file.txt")))

run(confined)
attempt("main thread", lambda: read(f"{outside}/file.txt"))
run(lambda: attempt("thread started by main", lambda: read(f"{outside}/file.txt")))
""",
    )
    assert answers == {
        "restricted": True,
        "own thread": "EACCES",
        "own thread inside": "ok",
        "thread started by it": "EACCES",
        "main thread": "ok",
        "thread started by main": "ok",
    }


@needs_landlock
def test_the_confined_root_works_under_it_with_either_resolver(base: Path) -> None:
    answers = answers_of(
        base,
        """
from armarium.foundation.files.confine import ConfinedRoot
roots = {name: ConfinedRoot(root, resolver=name) for name in ("openat2", "walk")}
restrict()
def use(confined):
    os.close(confined.open_regular("file.txt")[0])
    made = confined.make_directories(f"{confined.resolver}/deep")
    assert confined.locate(made) == f"{confined.resolver}/deep"
    os.close(made)
    with confined.opened_parent("inner/new.txt") as (fd, name):
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=fd))
        os.fsync(fd)
for name, confined in roots.items():
    attempt(name, lambda: use(confined))
""",
    )
    assert answers == {"restricted": True, "openat2": "ok", "walk": "ok"}


@needs_landlock
def test_a_failing_rule_is_an_error_and_leaves_the_thread_free(base: Path) -> None:
    (base / "loop").symlink_to("loop")
    answers = answers_of(
        base,
        """
attempt("loop", lambda: restrict_current_thread([f"{base}/loop"], []))
attempt("read", lambda: read(f"{outside}/file.txt"))
""",
    )
    assert answers == {"loop": "ELOOP", "read": "ok"}


def test_a_kernel_without_landlock_restricts_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "supported_abi", lambda: 0)
    assert restrict_current_thread([], []) is False
    assert os.listdir("/")


@pytest.mark.parametrize(
    ("abi", "rights"),
    [(1, 0x1FFF), (2, 0x3FFF), (3, 0x7FFF), (4, 0x7FFF), (5, 0xFFFF), (6, 0xFFFF), (7, 0xFFFF), (99, 0xFFFF)],
)
def test_each_version_handles_every_right_it_knows_and_no_other(abi: int, rights: int) -> None:
    assert handled_rights(abi) == rights


@needs_landlock
@pytest.mark.parametrize("abi", range(1, landlock.supported_abi() + 1))
def test_the_kernel_takes_the_rights_of_every_version_up_to_its_own(base: Path, abi: int) -> None:
    answers = answers_of(
        base,
        f"""
from armarium.foundation.files import landlock
landlock.supported_abi = lambda: {abi}
restrict()
attempt("inside", lambda: write(f"{{root}}/file.txt"))
attempt("outside", lambda: read(f"{{outside}}/file.txt"))
""",
    )
    assert answers == {"restricted": True, "inside": "ok", "outside": "EACCES"}


def test_what_python_reads_exists_and_is_not_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    paths = python_read_paths()
    assert all(os.path.exists(path) for path in paths)
    assert len(paths) == len(set(paths))
    assert sys.base_prefix in paths
    assert str(tmp_path) not in paths
    assert not {"/", "/etc", "/home", "/root", "/tmp"} & set(paths)
