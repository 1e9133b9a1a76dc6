"""Reports of scanners: written by the scanners themselves, or in their format."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FAULTY = """\
import os
import pickle
import subprocess


def run(command):
    subprocess.call(command, shell=True)
    return eval(command)


def read(data):
    return pickle.loads(data), undefined_name
"""
"""A module in which both ruff and bandit find something."""

FIXED = """\
def run(command):
    return command
"""


def faulty_project(directory: Path) -> Path:
    """A project with real faults, one of them in a file whose name needs encoding in an address."""
    (directory / "pkg").mkdir(parents=True)
    (directory / "pkg" / "faulty.py").write_text(FAULTY)
    (directory / "pkg" / "ein ä.py").write_text("import sys\n")
    (directory / "fine.py").write_text("ANSWER = 42\n")
    return directory


def ruff_report(project: Path) -> bytes:
    """What ruff says about the project."""
    return _said_by(
        "ruff", ["check", "--isolated", "--no-cache", "--select=E,F", "--output-format=sarif", "."], project
    )


def bandit_report(project: Path) -> bytes:
    """What bandit says about the project."""
    return _said_by("bandit", ["--quiet", "--recursive", ".", "--format=sarif"], project)


def _said_by(scanner: str, arguments: Sequence[str], project: Path) -> bytes:
    command = [str(Path(sys.executable).with_name(scanner)), *arguments]
    # Both end with 1 when they found something.
    return subprocess.run(command, cwd=project, capture_output=True, check=False, timeout=60).stdout


def sarif_result(
    path: str | None = "src/app.py", rule: str | None = "R1", line: int | None = 3, **more: Any
) -> dict[str, Any]:
    """One result, with whatever else a tool writes into it."""
    result: dict[str, Any] = {"message": {"text": "something is wrong"}}
    if rule is not None:
        result["ruleId"] = rule
    if path is not None:
        region = {"region": {"startLine": line}} if line is not None else {}
        result["locations"] = [{"physicalLocation": {"artifactLocation": {"uri": path}, **region}}]
    return result | more


def sarif_run(*results: dict[str, Any], tool: str = "Probe", rules: Sequence[Any] = (), **more: Any) -> dict[str, Any]:
    """One run of a tool."""
    return {"tool": {"driver": {"name": tool, "rules": list(rules)}}, "results": list(results)} | more


def sarif(*runs: dict[str, Any]) -> bytes:
    """A whole log."""
    return json.dumps({"version": "2.1.0", "runs": list(runs)}).encode()


def gitleaks_finding(secret: str, path: str = "deploy.sh", line: int = 2) -> dict[str, Any]:
    """One finding with every field that gitleaks writes, the secret three times."""
    return {
        "RuleID": "generic-api-key",
        "Description": "Detected a generic key",
        "StartLine": line,
        "EndLine": line,
        "StartColumn": 5,
        "EndColumn": 30,
        "Match": f"key = {secret}",
        "Secret": secret,
        "Line": f"export key = {secret}",
        "File": path,
        "SymlinkFile": "",
        "Commit": "",
        "Entropy": 4.2,
        "Author": "",
        "Email": "",
        "Date": "",
        "Message": f"add {secret}",
        "Tags": [],
        "Fingerprint": f"{path}:generic-api-key:{line}",
    }
