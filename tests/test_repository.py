"""Checks the repository itself: lock files, make targets, container files, a test for every case of the contract."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from armarium.capabilities.sandbox.roots import TOOL_NAMES

REPOSITORY = Path(__file__).parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")
NODE_PACKAGES = ("tests/node", "web")
CONFIGS = ("config/mcp-filesystem.yaml", "config/mcp-filesystem.container.yaml")

# Brackets keep a pattern from finding itself in this file.
REGISTRY_HOSTS = re.compile(r"pypi[.]org|pythonhosted[.]org|npmjs[.](org|com)|(index[-_]url|find[-_]links)\s*=")
# Examples in the documentation may use /home/me/ and /home/you/.
MACHINE_PATHS = re.compile(r"(?<![\w.~:/})])/(?:root|work|home(?!/(?:me|you)/))/[\w.]")


@cache
def tracked_text() -> dict[str, str]:
    """Every text file that is tracked, or untracked and not ignored."""
    listed = subprocess.run(
        # The checkout may belong to another user, as it does in most build containers.
        ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    contents: dict[str, str] = {}
    for name in filter(None, listed.split("\0")):
        file = REPOSITORY / name
        if file.is_file() and b"\0" not in (content := file.read_bytes()):
            contents[name] = content.decode("utf-8", errors="replace")
    return contents


def offending_lines(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in tracked_text().items()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def pyproject() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def locked_versions(lock: str) -> dict[str, Version]:
    lines = [line for line in (REPOSITORY / lock).read_text().splitlines() if line and not line.startswith("#")]
    pins = [re.fullmatch(r"([a-z0-9][a-z0-9.-]*)==([0-9][\w.!+]*)", line) for line in lines]
    assert all(pins), [line for line, pin in zip(lines, pins, strict=True) if not pin]
    return {canonicalize_name(pin[1]): Version(pin[2]) for pin in pins if pin}


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    # `make test` passes its own flags to nested calls of make.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", *arguments], cwd=REPOSITORY, env=environment, capture_output=True, text=True)


def makefile_targets() -> list[str]:
    phony = re.search(r"^\.PHONY: (.+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert phony
    return phony[1].split()


def test_no_tracked_file_names_a_package_index_or_its_options() -> None:
    assert offending_lines(REGISTRY_HOSTS) == []


def test_no_tracked_file_contains_a_machine_path() -> None:
    assert offending_lines(MACHINE_PATHS) == []


@pytest.mark.parametrize("lock", LOCKS)
def test_a_python_lock_holds_exact_versions_and_nothing_else(lock: str) -> None:
    assert len(locked_versions(lock)) > 20
    assert "://" not in (REPOSITORY / lock).read_text()


@pytest.mark.parametrize(("lock", "extras"), [(LOCKS[0], ("otel",)), (LOCKS[1], ("otel", "dev"))])
def test_a_python_lock_satisfies_every_requirement_it_was_made_from(lock: str, extras: tuple[str, ...]) -> None:
    project = pyproject()["project"]
    wanted = project["dependencies"] + [line for extra in extras for line in project["optional-dependencies"][extra]]
    locked = locked_versions(lock)
    for requirement in map(Requirement, wanted):
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is missing from {lock}; run `make lock`"
        assert version in requirement.specifier, f"{lock} has {requirement.name} {version}, wanted {requirement}"


def test_the_development_lock_agrees_with_the_runtime_lock() -> None:
    runtime, development = (locked_versions(lock) for lock in LOCKS)
    assert {name: development.get(name) for name in runtime} == runtime


@pytest.mark.parametrize("directory", NODE_PACKAGES)
def test_a_node_lock_holds_versions_and_digests_but_no_address(directory: str) -> None:
    text = (REPOSITORY / directory / "package-lock.json").read_text()
    package = json.loads((REPOSITORY / directory / "package.json").read_text())
    wanted = package["dependencies"] | package.get("devDependencies", {})
    packages = json.loads(text)["packages"]
    assert "://" not in text
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert all("integrity" in entry for path, entry in packages.items() if path and not entry.get("inBundle"))


def test_make_alone_prints_a_menu_with_every_target() -> None:
    menu = make().stdout
    assert re.findall(r"^  make ([a-z-]+) +\S", menu, re.MULTILINE) == makefile_targets()
    assert "\x1b" not in menu


def test_make_up_is_read_only_unless_asked_and_takes_a_directory_and_a_port() -> None:
    assert make("--dry-run", "up").stdout.splitlines()[-1].split() == [".venv/bin/armarium", "up", '"example"']
    command = make("--dry-run", "up", "DIR=my notes", "WRITE=1", "PORT=9000").stdout.splitlines()[-1]
    assert command == '.venv/bin/armarium up "my notes" --write --port 9000'


def test_make_run_starts_the_file_server_with_the_shipped_configuration() -> None:
    command = make("--dry-run", "run", "CMD=mcp-filesystem").stdout.splitlines()[-1]
    assert command == ".venv/bin/mcp-filesystem --config config/mcp-filesystem.yaml"


def test_scripts_can_be_executed() -> None:
    scripts = [REPOSITORY / ".ci/run", *(REPOSITORY / "scripts").iterdir()]
    assert [script.name for script in scripts if not os.access(script, os.X_OK)] == []


@pytest.mark.parametrize("config", CONFIGS)
def test_a_shipped_configuration_names_known_tools_and_one_root_that_allows_everything(config: str) -> None:
    roots = yaml.safe_load((REPOSITORY / config).read_text())["roots"]
    assert len({root["name"] for root in roots}) == len(roots) == 2
    assert roots[0]["allowed_tools"] == ["*"]
    assert set(roots[1]["allowed_tools"]) < set(TOOL_NAMES)


def test_the_development_configuration_works_from_a_fresh_clone() -> None:
    config = yaml.safe_load((REPOSITORY / CONFIGS[0]).read_text())
    assert config["host"] == "127.0.0.1"
    for root in config["roots"]:
        assert any(name.startswith(f"{root['path']}/") for name in tracked_text()), f"nothing tracked in {root['path']}"


def test_the_file_server_answers_when_started_with_the_development_configuration() -> None:
    program = Path(sys.executable).with_name("mcp-filesystem")
    with subprocess.Popen(
        [program, "--config", CONFIGS[0], "--port", "0"], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr
            ready = next((json.loads(line) for line in server.stderr if "listening" in line), None)
            assert ready, "the server ended before it listened"
            assert httpx.get(f"{ready['address']}/health", trust_env=False).text == "ok"
        finally:
            server.terminate()


def dockerfile_instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", (REPOSITORY / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def instruction(name: str) -> str:
    """The last instruction of that name, which overrides earlier ones."""
    return [rest for found, rest in dockerfile_instructions() if found == name][-1]


def copied_from_context() -> list[tuple[str, str]]:
    return [
        (source, rest.split()[-1])
        for name, rest in dockerfile_instructions()
        if name == "COPY" and not rest.startswith("--from=")
        for source in rest.split()[:-1]
    ]


def test_the_image_copies_files_that_exist_and_reach_the_build_context() -> None:
    admitted = {
        line.removeprefix("!")
        for line in (REPOSITORY / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert copied_from_context()
    for source, _ in copied_from_context():
        assert (REPOSITORY / source).exists()
        assert source.split("/")[0] in admitted


def test_the_image_installs_the_required_dependencies_in_locked_versions_and_no_extra() -> None:
    installs = [rest for name, rest in dockerfile_instructions() if name == "RUN" and "bin/pip install" in rest]
    assert len(installs) == 2
    with_dependencies, without = installs
    assert "--requirement requirements.txt --constraint requirements.lock" in with_dependencies
    assert "--no-deps" in without
    command = with_dependencies.partition(" > requirements.txt")[0].replace("python", sys.executable, 1)
    done = subprocess.run(["sh", "-c", command], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == pyproject()["project"]["dependencies"]


def test_the_image_starts_a_command_of_the_package_with_the_configuration_it_carries() -> None:
    command, flag, config = json.loads(instruction("CMD"))
    assert command in pyproject()["project"]["scripts"]
    assert flag == "--config"
    assert (CONFIGS[1], config) in copied_from_context()


def test_the_image_runs_without_root_and_owns_the_directories_it_serves() -> None:
    assert instruction("USER") == "armarium"
    prepared = next(rest for name, rest in dockerfile_instructions() if name == "RUN" and "useradd" in rest)
    for root in yaml.safe_load((REPOSITORY / CONFIGS[1]).read_text())["roots"]:
        assert root["path"] in prepared.split()


def test_image_composition_and_configuration_use_one_port() -> None:
    port = yaml.safe_load((REPOSITORY / CONFIGS[1]).read_text())["port"]
    service = compose_service()
    assert instruction("EXPOSE") == str(port)
    assert f"'127.0.0.1', {port}," in instruction("HEALTHCHECK")
    assert f"'127.0.0.1', {port}," in service["healthcheck"]["test"][-1]
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"]


def compose_service() -> dict[str, Any]:
    return yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["services"]["mcp-filesystem"]


def test_the_composition_drops_the_privileges_that_the_server_does_not_need() -> None:
    service = compose_service()
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service


def test_the_composition_mounts_every_root_and_the_configuration() -> None:
    mounts = {volume.split(":")[1]: volume.split(":")[0] for volume in compose_service()["volumes"]}
    for root in yaml.safe_load((REPOSITORY / CONFIGS[1]).read_text())["roots"]:
        assert root["path"] in mounts
    assert mounts[json.loads(instruction("CMD"))[-1]] == f"./{CONFIGS[1]}"
    for source in mounts.values():
        named = source in yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["volumes"]
        assert named or (REPOSITORY / source).exists()


def test_every_case_of_the_contract_is_named_by_a_test() -> None:
    found = set[str]()
    for file in (REPOSITORY / "tests").rglob("test_*.py"):
        if file != Path(__file__):
            found.update(re.findall(r"E2E-\d{3}", file.read_text()))
    cases = {f"E2E-{number:03}" for number in range(1, 85)}
    assert sorted(cases - found) == []


def test_what_benchmarks_import_exists() -> None:
    """They are not run here, and a benchmark that cannot start measures nothing."""
    missing: list[str] = []
    for name in sorted(each for each in tracked_text() if re.fullmatch(r"benchmarks/\w+\.py", each)):
        for node in ast.walk(ast.parse(tracked_text()[name])):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("armarium"):
                continue
            module = import_module(node.module or "")
            for imported in node.names:
                is_module = hasattr(module, "__path__") and find_spec(f"{node.module}.{imported.name}") is not None
                if not is_module and not hasattr(module, imported.name):
                    missing.append(f"{name}: {node.module}.{imported.name}")
    assert missing == []
