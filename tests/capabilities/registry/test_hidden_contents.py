"""Reports cannot be used to learn the content of a file that their sender may not read."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx
import pytest

from armarium.capabilities.registry.contents import Contents
from armarium.capabilities.registry.reports.sarif_identity import PLACE
from support.scanner_reports import sarif, sarif_result, sarif_run
from support.server import ServerProcess, installed_command, write_config

SECRET = "hunter2"
LINE = f"TOKEN={SECRET}"
LETTERS = "".join(sorted({*SECRET, *"xyz01"}))


@dataclass(frozen=True)
class Reporter:
    """Sends reports about the files of a project, and reads what the registry made of them."""

    api: str
    project: Path

    def report(self, *results: dict[str, Any]) -> dict[str, Any]:
        headers = {"content-type": "application/json"}
        content = sarif(sarif_run(*results))
        answer = httpx.post(f"{self.api}/scan-results", content=content, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def findings_by_rule(self) -> Counter[str]:
        page = httpx.get(f"{self.api}/findings", params={"limit": 10_000}).json()
        assert not page["has_more"]
        return Counter(each["rule_id"] for each in page["results"])

    def end_of_first_line(self, path: str) -> str:
        """What can be found out, one character after the other: a guess is right if the registry takes the finding
        with it for the one that it knows."""
        known = ""
        for column in range(len(LINE), len(LINE) - len(SECRET), -1):
            rules = {letter: f"{path}-{column}-{letter}" for letter in LETTERS}
            self.report(*(result(path, rule, 1, column) for rule in rules.values()))
            self.report(*(guess(path, rule, letter + known) for letter, rule in rules.items()))
            counts = self.findings_by_rule()
            right = [letter for letter, rule in rules.items() if counts[rule] == 1]
            if len(right) != 1:
                break
            known = right[0] + known
        return known


def result(path: str, rule: str, line: int, column: int | None = None, **more: Any) -> dict[str, Any]:
    region = {"startLine": line} | ({"startColumn": column} if column else {})
    location = {"physicalLocation": {"artifactLocation": {"uri": path}, "region": region}}
    return sarif_result(None, rule, locations=[location], **more)


def guess(path: str, rule: str, token: str) -> dict[str, Any]:
    """A finding beyond the end of a file. It has what an exported registry has about a place before this token."""
    place = array("H", [0] * 12 + [crc32(token.encode()) & 0xFFFF or 1] + [0] * 19).tobytes()
    return result(path, rule, 99, partialFingerprints={PLACE: place.hex()})


@pytest.fixture(scope="module")
def reporter(tmp_path_factory: pytest.TempPathFactory) -> Generator[Reporter]:
    """A server whose operator hides one more name, and whose own state is in the project."""
    base = tmp_path_factory.mktemp("hiding")
    project = base / "project"
    (project / "state").mkdir(parents=True)
    config = {
        "state_dir": str(project / "state"),
        "server": {"port": 0},
        "security": {"auth": "none", "hide_credentials": ["diary.txt"]},
        "registry": {"project": str(project)},
    }
    with ServerProcess([installed_command("armarium"), "serve", "--config", str(write_config(base, config))]) as server:
        yield Reporter(f"{server.url.removesuffix('/mcp')}/api/registry", project)


@pytest.mark.parametrize("path", [".env", "sub/SERVER.PEM", "diary.txt", "state/note", "link", "open.txt"])
def test_no_report_tells_the_characters_of_a_word(reporter: Reporter, path: str) -> None:
    file = reporter.project / path
    file.parent.mkdir(exist_ok=True)
    if path == "link":
        file.symlink_to("target.env")
        file = reporter.project / "target.env"
    file.write_text(f"{LINE}\n")
    assert reporter.end_of_first_line(path) == ""


@pytest.mark.parametrize(
    ("path", "is_recognised"), [("a/.env", False), ("a/diary.txt", False), ("state/x", False), ("a/open.txt", True)]
)
def test_no_report_confirms_a_guess_of_a_word_in_a_hidden_file(
    reporter: Reporter, path: str, is_recognised: bool
) -> None:
    (reporter.project / "a").mkdir(exist_ok=True)
    (reporter.project / path).write_text(f"{LINE}\n")
    reporter.report(result(path, path, 1, len("TOKEN=") + 1))
    reporter.report(guess(path, path, SECRET))
    assert (reporter.findings_by_rule()[path] == 1) is is_recognised


def test_a_finding_in_a_hidden_file_is_recognised_by_its_line(reporter: Reporter) -> None:
    (reporter.project / "b.env").write_text(f"{LINE}\n")
    reporter.report(result("b.env", "leak", 1, 7))
    again = reporter.report(result("b.env", "leak", 1, 7))
    assert (again["scans"][0] if "scans" in again else again)["findings_unchanged"] == 1


def test_a_place_within_a_word_is_that_of_the_word_and_in_an_endless_word_there_is_none() -> None:
    contents = Contents(f"value = compute(argument)\n{'x' * 5000}!\n")
    assert contents.place(1, 12) == contents.place(1, 9) != contents.place(1, 7)
    assert contents.place(2, 1) == contents.place(2, 1500) != b""
    assert contents.place(2, 4000) == b""
