"""The build of the console: what packages contain, when it builds, and that nothing of it leads elsewhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parent.parent
FILES = "armarium/surfaces/console/files"
# Names of XML vocabularies, and addresses in errors of Svelte and marked. Nothing is loaded from there.
NAMES = ("http://www.w3.org/", "https://svelte.dev/e/", "https://github.com/markedjs/marked")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel and a source distribution of this repository."""
    directory = tmp_path_factory.mktemp("dist")
    done = hatchling(REPOSITORY, "-d", str(directory))
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture
def unpacked(packages: Path, tmp_path: Path) -> Path:
    """The source distribution, as an installer unpacks it."""
    with tarfile.open(next(packages.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    return next(tmp_path.iterdir())


@pytest.fixture
def script(tmp_path: Path) -> ModuleType:
    """`scripts/console` with the directories of a small repository."""
    loader = SourceFileLoader("console_script", str(REPOSITORY / "scripts/console"))
    spec = spec_from_loader("console_script", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    module.WEB, module.FILES = tmp_path / "web", tmp_path / "files"
    (module.WEB / "src").mkdir(parents=True)
    (module.WEB / "src/main.ts").write_text("let a;")
    module.FILES.mkdir()
    return module


def hatchling(directory: Path, *arguments: str, skip: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ARMARIUM_SKIP_CONSOLE": "1" if skip else ""}
    command = [sys.executable, "-m", "hatchling", "build", *arguments]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_has_every_file_that_the_page_loads(packages: Path) -> None:
    with zipfile.ZipFile(next(packages.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
        manifest = json.loads(wheel.read(f"{FILES}/.vite/manifest.json"))
        page = wheel.read(f"{FILES}/index.html").decode()
    wanted = {file for chunk in manifest.values() for file in [chunk["file"], *chunk.get("css", ())]}
    assert len(wanted) > 5
    assert {f"{FILES}/{file}" for file in wanted} <= names
    linked = re.findall(r'(?:src|href)="/console/([^"]+)"', page)
    assert {f"{FILES}/{file}" for file in linked} <= names
    assert {f"{FILES}/canvas.html", f"{FILES}/built-from"} <= names


def test_nothing_of_the_console_leads_to_another_place() -> None:
    built = REPOSITORY / "src" / FILES
    addresses = [
        address
        for file in built.rglob("*")
        if file.is_file()
        for address in re.findall(r"https?://[^\s\"'`<>)]+", file.read_text(errors="replace"))
    ]
    assert addresses
    assert [address for address in addresses if not address.startswith(NAMES)] == []


def test_a_wheel_is_built_from_a_source_distribution_without_node(unpacked: Path) -> None:
    is_fresh = subprocess.run([sys.executable, unpacked / "scripts/console", "--is-fresh"], check=False)
    assert is_fresh.returncode == 0
    done = hatchling(unpacked, "-t", "wheel", "-d", str(unpacked / "dist"))
    assert done.returncode == 0, done.stderr
    assert not (unpacked / "web/node_modules").exists()
    assert not (unpacked / "web/.node").exists()


def test_a_package_without_the_console_is_not_built(unpacked: Path) -> None:
    shutil.rmtree(unpacked / "src" / FILES)
    done = hatchling(unpacked, "-t", "wheel", "-d", str(unpacked / "dist"), skip=True)
    assert done.returncode != 0
    assert "a package needs the console" in done.stderr
    assert not list(unpacked.glob("dist/*.whl"))


def test_the_console_is_built_again_when_a_content_changes_and_not_when_a_time_does(script: ModuleType) -> None:
    main = script.WEB / "src/main.ts"
    assert not script.is_fresh()
    (script.FILES / script.BUILT_FROM).write_text(script.source_hash())
    assert script.is_fresh()
    os.utime(main, (0, 0))
    (script.WEB / "node_modules").mkdir()
    (script.WEB / "node_modules/x.js").write_text("x")
    assert script.is_fresh()
    main.write_text("let b;")
    assert not script.is_fresh()
    main.write_text("let a;")
    main.rename(main.with_name("other.ts"))
    assert not script.is_fresh()


def test_a_console_that_is_too_large_is_not_built(script: ModuleType) -> None:
    assets = script.FILES / "assets"
    assets.mkdir()
    (script.FILES / ".vite").mkdir()
    manifest = {
        "index.html": {"file": "assets/index.js", "css": ["assets/index.css"]},
        # What is loaded at once after the page counts, too.
        script.FIRST_PAGE: {"file": "assets/ask.js", "imports": ["_shared"], "isDynamicEntry": True},
        "_shared": {"file": "assets/shared.js"},
        "src/editor.ts": {"file": "assets/editor.js", "isDynamicEntry": True},
    }
    (script.FILES / script.MANIFEST).write_text(json.dumps(manifest))
    for name in ("index.js", "ask.js", "shared.js", "index.css", "editor.js"):
        (assets / name).write_bytes(b"small")
    script.check_sizes(script.FILES)
    (assets / "editor.js").write_bytes(os.urandom(100_000))
    script.check_sizes(script.FILES)
    (assets / "shared.js").write_bytes(os.urandom(61_000))
    with pytest.raises(SystemExit, match="the scripts of the first page: 6"):
        script.check_sizes(script.FILES)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_fresh_clone_is_built_with_python_pip_and_make_alone(tmp_path: Path) -> None:
    """Another Node on this machine is not used."""
    clone, programs = tmp_path / "clone", tmp_path / "programs"
    subprocess.run(["git", "-c", "safe.directory=*", "clone", "--quiet", REPOSITORY, clone], check=True)
    programs.mkdir()
    for name in ("node", "npm", "npx"):
        program = programs / name
        program.write_text(f"#!/bin/sh\necho 'the {name} of the machine was used' >&2\nexit 1\n")
        program.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(["make", "console"], cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "<title>Armarium</title>" in (clone / "src" / FILES / "index.html").read_text()
    again = subprocess.run(["make", "console"], cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert "building" not in again.stdout + again.stderr
