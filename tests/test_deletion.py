"""A capability can be deleted: its folder, its tests and one line of the assembly, and everything else still works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
CAPABILITIES = ("sandbox", "store", "registry", "corpus", "gateway")
DIRECTORY_FLAGS = {"corpus": "index", "registry": "registry"}
EVERYTHING = "armarium.server, armarium.settings, armarium.surfaces.cli.main, armarium.surfaces.cli.start"
REMAINING_TESTS = (
    "tests/command_line",
    "tests/foundation/test_errors.py",
    "tests/foundation/test_sqlite.py",
    "tests/foundation/test_tool_specs.py",
    "tests/retrieval/test_sources.py",
    "tests/surfaces/mcp/test_dispatch.py",
)


@pytest.fixture
def copy(tmp_path: Path, capability: str) -> Path:
    """The repository without a capability."""
    for name in ("src", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "node", "samples")
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=ignored)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    shutil.rmtree(tmp_path / "src/armarium/capabilities" / capability)
    shutil.rmtree(tmp_path / "tests/capabilities" / capability)
    assembly = tmp_path / "src/armarium/assembly.py"
    lines = assembly.read_text().splitlines(keepends=True)
    [line] = [each for each in lines if each.strip() == f'"{capability}",']
    lines.remove(line)
    assembly.write_text("".join(lines))
    return tmp_path


def run(copy: Path, program: str, *arguments: str) -> None:
    environ = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(Path(sys.executable).with_name(program)), *arguments]
    done = subprocess.run(command, cwd=copy, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_the_rest_works_without_a_capability(copy: Path, capability: str) -> None:
    check = f"import {EVERYTHING}\nassert {capability!r} not in armarium.settings.Settings.model_fields"
    flags = {flag for owner, flag in DIRECTORY_FLAGS.items() if owner != capability}
    parameters = "inspect.signature(armarium.surfaces.cli.main.up).parameters.keys()"
    check += f"\nimport inspect\nassert {set(DIRECTORY_FLAGS.values())} & {parameters} == {flags or 'set()'}"
    run(copy, Path(sys.executable).name, "-c", check)
    run(copy, "lint-imports", "--no-cache")
    existing = [each for each in REMAINING_TESTS if (copy / each).exists()]
    run(copy, "pytest", "-q", "-p", "no:cacheprovider", "-m", "not soak", *existing)
