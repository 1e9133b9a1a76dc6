"""Do judged findings stay the same over releases, shifted lines, reformatting and renames? Are any merged?

Five consecutive releases of real projects are scanned by tools that write no fingerprints, and imported one after the
other into one registry; then the last one again with three lines on top of each file, reformatted, and with every file
in another directory. After each import a fifth of the open findings is judged.

What should stay the same is decided without the registry: `difflib` aligns the two versions of a file, first by lines,
then by tokens where lines differ. If the token at which a finding begins is in both versions, and the scanner reports
the same rule there, it is the same finding. Findings whose own code changed are counted apart.

The releases are downloaded with pip (and npm, for eslint), or taken from the folder that is given as an argument, if it
has them from an earlier run. eslint and its SARIF formatter are installed there; without npm it is left out.
"""

from __future__ import annotations

import difflib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from armarium.capabilities.registry.arguments import ImportOptions
from armarium.capabilities.registry.lifespan import open_registry
from armarium.capabilities.registry.model import Scanned
from armarium.capabilities.registry.reports.formats import read_reports
from armarium.capabilities.registry.service import Registry
from trial import QUICK, report

PYTHON_RELEASES = {
    "flask": ("1.1.3", "1.1.4", "2.0.0", "2.0.1", "2.0.2"),
    "requests": ("2.29.0", "2.30.0", "2.31.0", "2.32.2", "2.32.3"),
}
NODE_RELEASES = {"express": ("4.18.0", "4.18.1", "4.18.2", "4.18.3", "4.19.0")}
LEAST_KEPT = 0.98
JUDGED = 5
"""One finding of this many."""
_TOKEN = re.compile(r"\w+|[^\w\s]")
_LAYOUT = frozenset(",;()'\"`\\")
_PATCHED_ONE_LINE = "# one\n# two\n# three\n"
_CODE = (".py", ".js")


class Result(NamedTuple):
    """A result of a scanner."""

    source: str
    path: str
    rule: str
    line: int
    column: int
    message: str


@dataclass
class Tally:
    """The figures of the steps of one kind."""

    same: int = 0
    """Findings that are in both reports."""
    kept: int = 0
    judged: int = 0
    judged_kept: int = 0
    code_changed: int = 0
    """Findings whose code is not in the later version."""
    wrong: int = 0
    """Earlier findings that were recognised in another place than the one where they are."""
    lost: Counter[str] = field(default_factory=Counter)


def main() -> None:
    given = [each for each in sys.argv[1:] if not each.startswith("-")]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(given[0] if given else scratch)
        folder.mkdir(parents=True, exist_ok=True)
        tallies: dict[str, Tally] = defaultdict(Tally)
        merged, results = 0, 0
        eslint = installed_eslint(folder)
        projects = [(name, versions, python_release) for name, versions in PYTHON_RELEASES.items()]
        projects += [(name, versions, node_release) for name, versions in NODE_RELEASES.items() if eslint]
        for name, versions, download in projects[:1] if QUICK else projects:
            trees = [download(folder, name, version) for version in versions]
            here = anyio.run(followed, name, trees, eslint, tallies)
            merged, results = merged + here[0], results + here[1]
    rows: list[dict[str, Any]] = [row_of(step, tally) for step, tally in tallies.items()]
    judged = sum(tally.judged for tally in tallies.values())
    kept = sum(tally.judged_kept for tally in tallies.values())
    share = round(kept / max(1, judged), 4)
    rows.append(
        {
            "step": "all",
            "results": results,
            "judged": judged,
            "judged_kept": kept,
            "kept_share": share,
            "merged": merged,
        }
    )
    goal = f"{kept} of {judged} judged findings stay the same ({kept / judged:.2%}), {merged} of {results} are merged"
    report("registry_identity", rows, goal, kept >= LEAST_KEPT * judged and not merged)


def row_of(step: str, tally: Tally) -> dict[str, Any]:
    return {
        "step": step,
        "findings": tally.same,
        "kept": tally.kept,
        "judged": tally.judged,
        "judged_kept": tally.judged_kept,
        "kept_share": round(tally.judged_kept / max(1, tally.judged), 4),
        "code_changed": tally.code_changed,
        "wrongly_recognised": tally.wrong,
        "lost_most": ", ".join(f"{rule} {count}" for rule, count in tally.lost.most_common(4)),
    }


async def followed(name: str, trees: Sequence[Path], eslint: Path | None, tallies: dict[str, Tally]) -> tuple[int, int]:
    """Import the releases and the changed copies of the last one. Returns how many results were merged, and of how
    many."""
    with tempfile.TemporaryDirectory() as directory:
        project = Path(directory) / name
        project.mkdir()
        merged = seen = 0
        before: dict[Result, dict[str, Any]] = {}
        texts: dict[str, str] = {}
        async with open_registry(project) as registry:
            for step in ["first", *["release"] * (len(trees) - 1), "shifted", "reformatted", "renamed"]:
                if step in ("first", "release"):
                    replace_tree(project, trees[0] if step == "first" else (trees := trees[1:])[0])
                else:
                    change_tree(project, step)
                results, scans = await imported(registry, project, eslint)
                recognised = sum(
                    scan[f"findings_{what}"]
                    for scan in scans
                    for what in ("created", "updated", "reopened", "unchanged")
                )
                merged, seen = merged + len(results) - recognised, seen + len(results)
                after = await stored(registry, results)
                now = {path: (project / path).read_text("utf-8", "replace") for path in {each.path for each in results}}
                if before:
                    compare(tallies[step], before, after, texts, now)
                await judge(registry, after)
                before, texts = await stored(registry, results), now
                print(f"{name}: {step}, {len(results)} results")
    return merged, seen


async def imported(registry: Registry, project: Path, eslint: Path | None) -> tuple[set[Result], list[Scanned]]:
    results: set[Result] = set()
    scans: list[Scanned] = []
    for data in reports_of(project, eslint):
        log = json.loads(data)
        for run in log["runs"]:
            source = run["tool"]["driver"]["name"].lower()
            results |= {result_of(source, each, project) for each in run["results"]}
        scans += await registry.scan_all(read_reports(data, ImportOptions(paths=(".",))), "benchmark")
    return results, scans


def reports_of(project: Path, eslint: Path | None) -> Iterator[bytes]:
    tools = Path(sys.executable).parent
    if any(project.rglob("*.py")):
        yield output_of(
            [tools / "ruff", "check", "--isolated", "--no-cache", "--select=ALL", "--output-format=sarif", "."], project
        )
        yield output_of([tools / "bandit", "--quiet", "--recursive", ".", "--format=sarif"], project)
    if eslint is not None and any(project.rglob("*.js")):
        formatter = eslint / "node_modules" / "@microsoft" / "eslint-formatter-sarif"
        command = [eslint / "node_modules" / ".bin" / "eslint", "--no-eslintrc", "--no-ignore", "--env=node,es2022"]
        rules = [f"--rule={each}:warn" for each in ESLINT_RULES]
        yield output_of([*command, *rules, f"--format={formatter}", "."], project)


ESLINT_RULES = (
    "no-unused-vars", "no-var", "prefer-const", "eqeqeq", "no-shadow", "prefer-template", "no-param-reassign",
    "prefer-arrow-callback", "func-names", "no-use-before-define", "no-magic-numbers", "no-undef", "consistent-return",
)  # fmt: skip


def output_of(command: Sequence[Path | str], directory: Path) -> bytes:
    # Scanners end with 1 if they found something.
    ran = subprocess.run([*map(str, command)], cwd=directory, capture_output=True, check=False, timeout=600)
    if not ran.stdout.strip():
        raise SystemExit(f"{command[0]} wrote no report: {ran.stderr.decode(errors='replace')[-500:]}")
    return ran.stdout


def result_of(source: str, result: dict[str, Any], project: Path) -> Result:
    place = result["locations"][0]["physicalLocation"]
    region = place.get("region", {})
    uri = place["artifactLocation"]["uri"].removeprefix("file://").removeprefix(f"{project.resolve()}/")
    line, column = region.get("startLine", 1), region.get("startColumn", 1)
    return Result(source, uri.removeprefix("./"), result["ruleId"], line, column, result["message"]["text"])


async def stored(registry: Registry, results: set[Result]) -> dict[Result, dict[str, Any]]:
    """The finding of each result."""
    found: dict[Result, dict[str, Any]] = {}
    offset, total = 0, 1
    while offset < total:
        page = await registry.list_findings(limit=10_000, offset=offset)
        offset, total = offset + len(page["results"]), page["total"]
        for each in page["results"]:
            key = Result(
                each["scan_source"], each["file_path"], each["rule_id"], each["line_start"] or 1,
                each["metadata"].get("column", 1), each["message"],
            )  # fmt: skip
            if key in results and (key not in found or each["status"] != "fixed"):
                found[key] = dict(each)
    return found


async def judge(registry: Registry, findings: dict[Result, dict[str, Any]]) -> None:
    for number, result in enumerate(sorted(findings)):
        if number % JUDGED == 0 and findings[result]["status"] == "open":
            await registry.update_finding(findings[result]["id"], "false_positive", "benchmark")


def compare(
    tally: Tally,
    before: dict[Result, dict[str, Any]],
    after: dict[Result, dict[str, Any]],
    earlier: dict[str, str],
    later: dict[str, str],
) -> None:
    """Compare what the registry recognised with what the texts of the files say."""
    at: dict[tuple[str, str, str, int], list[Result]] = defaultdict(list)
    positions = {path: Positions(text) for path, text in later.items()}
    for result in after:
        index = positions[result.path].index(result)
        at[result.source, result.path, result.rule, index].append(result)
    by_id = {finding["id"]: result for result, finding in after.items()}
    by_path: dict[str, list[Result]] = defaultdict(list)
    for result in before:
        by_path[result.path].append(result)
    for path, new_path in paired_files(earlier, later).items():
        old = Positions(earlier[path])
        moved = alignment(old, positions[new_path])
        for result in by_path[path]:
            finding = before[result]
            now = by_id.get(finding["id"])
            index = moved.get(old.index(result))
            if index is None:
                tally.code_changed += 1
                continue
            there = [*at.get((result.source, new_path, result.rule, index), ())]
            if is_about_file(result) and now is not None and is_about_file(now):
                there.append(now)
            if now is not None and now not in there:
                tally.wrong += 1
            same = [each for each in there if kind(each) == kind(result)] or there
            if not same:
                continue
            kept = now in same
            tally.same += 1
            tally.kept += kept
            if finding["status"] == "false_positive":
                tally.judged += 1
                tally.judged_kept += kept and after[now]["status"] == "false_positive"
            if not kept:
                tally.lost[result.rule] += 1


def is_about_file(result: Result) -> bool:
    """Scanners report what is about a whole file at its beginning, whatever is there."""
    return (result.line, result.column) == (1, 1)


def kind(result: Result) -> str:
    return re.sub(r"\d+", "0", result.message)


class Positions:
    """The tokens of a text that formatters keep, and where they are."""

    def __init__(self, text: str) -> None:
        self.lines: list[list[str]] = []
        self.first: list[int] = []
        """The number of the first token of each line."""
        self._columns: list[list[int]] = []
        count = 0
        for line in re.split(r"\r\n|\n|\r", text):
            found = [match for match in _TOKEN.finditer(line) if match[0] not in _LAYOUT]
            self.lines.append([match[0] for match in found])
            self._columns.append([match.end() for match in found])
            self.first.append(count)
            count += len(found)

    def index(self, result: Result) -> int:
        """The number of the token at which a result begins, or the first one after it."""
        line = min(result.line, len(self.lines)) - 1
        return self.first[line] + sum(end < result.column for end in self._columns[line])


def alignment(old: Positions, new: Positions) -> dict[int, int]:
    """The number of each token in the later text that has it."""
    moved: dict[int, int] = {}
    lines = difflib.SequenceMatcher(None, [*map(tuple, old.lines)], [*map(tuple, new.lines)], autojunk=False)
    for what, i1, i2, j1, j2 in lines.get_opcodes():
        some = [token for line in old.lines[i1:i2] for token in line]
        others = [token for line in new.lines[j1:j2] for token in line]
        start, other_start = old.first[i1] if some else 0, new.first[j1] if others else 0
        if what == "equal":
            moved.update((start + number, other_start + number) for number in range(len(some)))
        elif what == "replace":
            tokens = difflib.SequenceMatcher(None, some, others, autojunk=False)
            for block in tokens.get_matching_blocks():
                numbers = range(block.size)
                moved.update((start + block.a + each, other_start + block.b + each) for each in numbers)
    return moved


def paired_files(earlier: dict[str, str], later: dict[str, str]) -> dict[str, str]:
    """The later path of each file: its own, or that of the most similar new file."""
    pairs = {path: path for path in earlier if path in later}
    appeared = {path for path in later if path not in earlier}
    for path in sorted(set(earlier) - set(later)):
        lines = earlier[path].splitlines()
        ratios = {
            other: difflib.SequenceMatcher(None, lines, later[other].splitlines(), autojunk=False).quick_ratio()
            for other in appeared
        }
        best = max(ratios, key=lambda other: (ratios[other], other.endswith(path.rpartition("/")[2])), default=None)
        if best is not None and ratios[best] > 0.5:
            pairs[path] = best
            appeared.discard(best)
    return pairs


def replace_tree(project: Path, tree: Path) -> None:
    for each in project.iterdir():
        if each.name != ".armarium":
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    for file in tree.rglob("*"):
        if file.suffix in _CODE and file.is_file():
            target = project / file.relative_to(tree)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)


def change_tree(project: Path, step: str) -> None:
    files = [each for each in project.rglob("*") if each.suffix in _CODE]
    if step == "reformatted":
        ruff = Path(sys.executable).with_name("ruff")
        subprocess.run([ruff, "format", "--isolated", "--quiet", "--line-length=100", "."], cwd=project, check=False)
        for file in (each for each in files if each.suffix == ".js"):
            # No formatter for these: indentation by tabs, and no space before brackets.
            text = re.sub(r"(?m)^( {2})+", lambda match: "\t" * (len(match[0]) // 2), file.read_text())
            file.write_text(text.replace(" (", "("))
    for file in files:
        if step == "shifted":
            comment = _PATCHED_ONE_LINE.replace("#", "//") if file.suffix == ".js" else _PATCHED_ONE_LINE
            file.write_bytes(comment.encode() + file.read_bytes())
        elif step == "renamed":
            target = project / "moved" / file.relative_to(project).parent / f"{file.stem}_{file.suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)


def python_release(folder: Path, name: str, version: str) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-binary=:all:", "--no-deps", "--dest"]
    return downloaded(folder, name, version, lambda into: [*command, str(into), f"{name}=={version}"])


def node_release(folder: Path, name: str, version: str) -> Path:
    pack = ["npm", "pack", "--silent", "--pack-destination"]
    return downloaded(folder, name, version, lambda into: [*pack, str(into), f"{name}@{version}"])


def downloaded(folder: Path, name: str, version: str, command: Any) -> Path:
    """The tree of a release; downloaded once."""
    tree = folder / f"{name}-{version}"
    if tree.is_dir():
        return tree
    with tempfile.TemporaryDirectory() as into:
        ran = subprocess.run(command(into), capture_output=True, text=True, check=False, timeout=600)
        archives = [*Path(into).glob("*.t*gz")]
        if ran.returncode or not archives:
            reason = (ran.stderr.strip().splitlines() or ["no archive"])[-1]
            raise SystemExit(
                f"{name} {version} cannot be downloaded: {reason}\n"
                "hint: without a network, give the folder with the releases of an earlier run"
            )
        with tarfile.open(archives[0]) as archive:
            archive.extractall(into, filter="data")
        unpacked = next(each for each in Path(into).iterdir() if each.is_dir())
        shutil.move(unpacked, tree)
    return tree


def installed_eslint(folder: Path) -> Path | None:
    """The folder with eslint, or None where it cannot be installed."""
    into = folder / "eslint"
    if not (into / "node_modules").is_dir():
        into.mkdir(exist_ok=True)
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(into)]
        with suppress(OSError):
            subprocess.run(
                [*command, "eslint@8", "@microsoft/eslint-formatter-sarif@3"],
                capture_output=True,
                check=False,
                timeout=600,
            )
    if (into / "node_modules" / ".bin" / "eslint").exists():
        return into
    print("eslint cannot be installed; left out")
    return None


if __name__ == "__main__":
    main()
