"""Runs the set-up scripts on machines that lack something, played by stand-ins on the search path."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"

NORMAL_USER = "echo 1000"
ROOT = "echo 0"
RECORD = 'echo "$(basename "$0") $*" >>"$LOG"'
OLD_PYTHON = "exit 1"
PYTHON_WITHOUT_ENSUREPIP = f'case "$*" in *ensurepip*) exit 1 ;; esac; {RECORD}'
BARE_PYTHON = 'case "$*" in *ensurepip* | *pip*) exit 1 ;; *"print("*) echo python3.12-venv ;; esac'

WANTED = ("pg_lsclusters", "pgbouncer", "redis_server", "chromium")

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where stand-ins note how they were called."""
    return tmp_path / "log"


@pytest.fixture
def run(tmp_path: Path, log: Path) -> Run:
    """Runs a script where the only programs are the given stand-ins, each a line of shell."""

    def run(script: str, *arguments: str, **programs: str) -> subprocess.CompletedProcess[str]:
        programs_dir = tmp_path / "bin"
        programs_dir.mkdir()
        (programs_dir / "basename").symlink_to("/usr/bin/basename")
        for name, line in programs.items():
            program = programs_dir / (name if name.startswith("pg_") else name.replace("_", "-"))
            program.write_text(f"#!/bin/sh\n{line}\n")
            program.chmod(0o755)
        return subprocess.run(
            ["/bin/sh", SCRIPTS / script, *arguments],
            cwd=tmp_path,
            env={"PATH": str(programs_dir), "LOG": str(log)},
            capture_output=True,
            text=True,
        )

    return run


def test_a_machine_that_has_every_program_is_left_alone(run: Run) -> None:
    done = run("system-deps", git=":", rg=":", fd=":", id=ROOT, **dict.fromkeys(WANTED, ":"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_root_on_debian_gets_what_is_missing_and_only_that(run: Run, log: Path) -> None:
    done = run("system-deps", git=":", id=ROOT, apt_get=RECORD)
    assert done.returncode == 0, done.stderr
    update, install = log.read_text().splitlines()
    assert update.startswith("apt-get update")
    assert install.split()[-2:] == ["ripgrep", "fd-find"]


def test_anyone_else_is_told_exactly_what_to_install(run: Run, log: Path) -> None:
    done = run("system-deps", rg=":", id=NORMAL_USER, apt_get=RECORD)
    assert done.returncode == 1
    assert "hint: sudo apt-get install -y git fd-find\n" in done.stderr
    assert not log.exists()


def test_a_program_that_only_some_tests_need_is_installed_where_that_is_possible(run: Run, log: Path) -> None:
    done = run("system-deps", git=":", rg=":", fd=":", id=ROOT, apt_get=RECORD)
    assert done.returncode == 0, done.stderr
    assert log.read_text().splitlines()[-1].split()[-4:] == ["postgresql-15", "pgbouncer", "redis-server", "chromium"]


def test_a_program_that_only_some_tests_need_stops_nobody(run: Run, log: Path) -> None:
    done = run("system-deps", git=":", rg=":", fd=":", id=NORMAL_USER, apt_get=RECORD)
    assert done.returncode == 0
    assert "are skipped" in done.stderr
    assert "redis-server" in done.stderr
    assert not log.exists()


def test_a_system_without_apt_is_told_the_programs(run: Run) -> None:
    done = run("system-deps", id=ROOT)
    assert done.returncode == 1
    assert "git, ripgrep and fd" in done.stderr


def test_an_old_python_is_refused_with_what_to_do(run: Run) -> None:
    done = run("venv", "env", python3=OLD_PYTHON)
    assert done.returncode == 1
    assert "Python 3.11 or newer" in done.stderr
    assert "hint: " in done.stderr


def test_a_newer_python_beside_an_old_one_is_found(run: Run, log: Path) -> None:
    done = run("venv", "env", python3=OLD_PYTHON, **{"python3.12": RECORD})
    assert done.returncode == 0, done.stderr
    assert log.read_text().splitlines()[-1] == "python3.12 -m venv --clear env"


def test_pip_fills_the_environment_where_ensurepip_is_missing(run: Run, log: Path) -> None:
    done = run("venv", "env", python3=PYTHON_WITHOUT_ENSUREPIP)
    assert done.returncode == 0, done.stderr
    make_empty, fill = log.read_text().splitlines()[-2:]
    assert make_empty == "python3 -m venv --clear --without-pip env"
    assert fill.endswith("--python env/bin/python install pip")


def test_without_pip_and_ensurepip_a_normal_user_is_told_the_package(run: Run) -> None:
    done = run("venv", "env", python3=BARE_PYTHON, id=NORMAL_USER, apt_get=RECORD)
    assert done.returncode == 1
    assert "hint: sudo apt-get install -y python3.12-venv\n" in done.stderr


def test_without_pip_and_ensurepip_root_gets_the_package(run: Run, log: Path) -> None:
    done = run("venv", "env", python3=BARE_PYTHON, id=ROOT, apt_get=RECORD)
    assert done.returncode == 0, done.stderr
    assert log.read_text().splitlines()[-1].split()[-1] == "python3.12-venv"


def test_an_environment_that_works_is_kept(run: Run, tmp_path: Path, log: Path) -> None:
    existing = tmp_path / "env/bin/python"
    existing.parent.mkdir(parents=True)
    existing.write_text("#!/bin/sh\n")
    existing.chmod(0o755)
    done = run("venv", "env", python3=RECORD)
    assert done.returncode == 0, done.stderr
    assert not log.exists()
