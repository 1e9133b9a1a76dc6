"""The documentation is current, short where it must be short, and every link and path in it leads somewhere."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from reference.architecture_tree import BEGIN, END, MarkersMissing, summary_of, with_tree
from reference.benchmarks_page import UnknownCase, benchmarks_page

REPOSITORY = Path(__file__).parent.parent
DOCS = REPOSITORY / "docs"
RESULTS = REPOSITORY / "benchmarks/results"
PAGES = sorted([*DOCS.rglob("*.md"), *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))])
CAPABILITIES = sorted(
    folder.name for folder in (REPOSITORY / "src/armarium/capabilities").iterdir() if (folder / "__init__.py").exists()
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub derives them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = list[str]()
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            broken.append(link)
    assert broken == []


def test_every_image_that_a_page_names_exists_and_every_image_is_named() -> None:
    named = {
        (page.parent / image).resolve()
        for page in PAGES
        for found in IMAGE.finditer(page.read_text(encoding="utf-8"))
        if "://" not in (image := found[1] or found[2])
    }
    assert named == set((DOCS / "images").iterdir())


def test_the_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text(encoding="utf-8").split()) <= 700


def test_the_readme_says_how_to_build_run_and_configure_the_file_server() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## `mcp-filesystem`")[2].partition("\n## ")[0]
    for needed in ("make build", "make run CMD=mcp-filesystem", "docker compose up", "allowed_tools", "24 hours"):
        assert needed in section
    sample = section.partition("```yaml\n")[2].partition("```")[0]
    assert 8 <= len(sample.splitlines()) <= 12


def test_every_capability_has_a_page_that_the_index_and_the_readme_link() -> None:
    assert set(CAPABILITIES) <= {page.stem for page in (DOCS / "capabilities").glob("*.md")}
    index, readme = (DOCS / "functionalities.md").read_text(), (REPOSITORY / "README.md").read_text()
    for name in CAPABILITIES:
        assert f"(capabilities/{name}.md)" in index
        assert f"(docs/capabilities/{name}.md)" in readme


def test_every_tool_of_the_reference_is_on_the_page_of_its_capability() -> None:
    reference = (DOCS / "reference/tools.md").read_text(encoding="utf-8")
    for section in reference.split("\n## ")[1:]:
        capability = section.partition("\n")[0]
        page = (DOCS / f"capabilities/{capability}.md").read_text(encoding="utf-8")
        tools = re.findall(r"^### (\S+)$", section, re.MULTILINE)
        assert [tool for tool in tools if f"`{tool}`" not in page] == []


def test_every_module_that_the_architecture_names_exists() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8").partition(BEGIN)[0]
    source = REPOSITORY / "src/armarium"
    folders = [source / "capabilities" / name for name in CAPABILITIES]
    missing = list[str]()
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        # A section about a capability names modules relative to its folder; others may mean any capability.
        about = [folder for folder in folders if section.lower().startswith(f"{folder.name}\n")] or folders
        paths = re.findall(r"`([\w./-]+(?:\.py|/))`", section)
        missing += [
            path for path in paths if not any((place / path).exists() for place in (*about, source, REPOSITORY))
        ]
    assert missing == []


def test_the_tree_in_the_architecture_is_current() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    assert with_tree(page, REPOSITORY / "src/armarium") == page, "run `make docs`"


def test_the_page_of_benchmarks_is_current() -> None:
    assert benchmarks_page(RESULTS) == (DOCS / "benchmarks.md").read_text(encoding="utf-8"), "run `make docs`"


def test_a_result_that_no_question_shows_is_an_error(tmp_path: Path) -> None:
    questions = tmp_path / "questions.yaml"
    questions.write_text('Sandbox:\n  - {question: "Fast?", benchmark: speed, case: {case: read*}, ours: wall_s}\n')
    result = {"name": "speed", "goal": "fast", "met": True, "figures": [{"case": "read 1 KB", "wall_s": 0.002}]}
    (tmp_path / "speed.json").write_text(json.dumps(result))
    assert "| [Fast?](../benchmarks/speed.py) | 2 ms | | | lower |" in benchmarks_page(tmp_path, questions)
    (tmp_path / "size.json").write_text(json.dumps(result))
    with pytest.raises(UnknownCase, match="size"):
        benchmarks_page(tmp_path, questions)


def test_a_question_about_a_case_that_was_not_measured_is_an_error(tmp_path: Path) -> None:
    questions = tmp_path / "questions.yaml"
    questions.write_text('Sandbox:\n  - {question: "Fast?", benchmark: speed, case: {case: write}, ours: wall_s}\n')
    result = {"name": "speed", "goal": "fast", "met": True, "figures": [{"case": "read", "wall_s": 0.002}]}
    (tmp_path / "speed.json").write_text(json.dumps(result))
    with pytest.raises(UnknownCase, match="write"):
        benchmarks_page(tmp_path, questions)


def test_the_tree_shows_the_first_sentence_of_each_docstring(tmp_path: Path) -> None:
    package = tmp_path / "pack"
    (package / "inner/sql").mkdir(parents=True)
    (package / "__init__.py").write_text('"""A package."""\n')
    (package / "bare.py").write_text("x = 1\n")
    (package / "inner/__init__.py").write_text('"""Inside. More about it."""\n')
    (package / "inner/module.py").write_text('"""Reads `a.b` files,\nand writes them.\n\nDetails.\n"""\n')
    (package / "inner/sql/queries.sql").write_text("")
    page = with_tree(f"before\n{BEGIN}\nold\n{END}\nafter\n", package)
    assert [line.split(maxsplit=1) for line in page.splitlines() if line and line != "```"] == [
        ["before"],
        BEGIN.split(maxsplit=1),
        ["pack/", "A package"],
        ["bare.py"],
        ["inner/", "Inside"],
        ["module.py", "Reads `a.b` files, and writes them"],
        ["sql/", "queries"],
        END.split(maxsplit=1),
        ["after"],
    ]
    assert with_tree(page, package) == page
    assert summary_of(package / "missing.py") == ""
    with pytest.raises(MarkersMissing):
        with_tree("no place for it", package)


def script(name: str) -> ModuleType:
    loader = SourceFileLoader(name.replace("-", "_"), str(REPOSITORY / "scripts" / name))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def recorder() -> ModuleType:
    return script("record-terminal")


def test_a_recording_is_the_output_of_the_command_on_a_terminal(recorder: ModuleType, tmp_path: Path) -> None:
    home = tmp_path / "project"
    home.mkdir()
    assert recorder.run("test -t 1 && pwd && printf '\\033[1mbold\\033[0m\\n'", home) == ["~/project", "bold"]
    with pytest.raises(SystemExit, match="failed"):
        recorder.run("false", home)


def test_a_session_is_rendered_to_the_same_picture_every_time(recorder: ModuleType) -> None:
    session = [("cat <file>", ["a & b [notes.md:L1-L2]", "", "x" * 150])]
    drawn = recorder.picture(session)
    assert drawn == recorder.picture(session)
    texts = ["".join(text.itertext()) for text in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert texts[1:] == ["$ cat <file>", "a & b [notes.md:L1-L2]", "x" * 150]


def test_the_picture_of_a_terminal_shows_each_recorded_command(recorder: ModuleType) -> None:
    drawn = ET.parse(REPOSITORY / "docs/images/terminal.svg").getroot()
    text = "".join("".join(line.itertext()) for line in drawn.iter("{http://www.w3.org/2000/svg}text"))
    assert [command for command in recorder.COMMANDS if f"$ {command}" not in text] == []


def test_a_picture_with_few_colours_keeps_those_that_are_rare(tmp_path: Path) -> None:
    many = Image.new("RGB", (64, 64))
    many.putdata([(place % 64 * 4, place // 64 * 4, 128) for place in range(64 * 64)])
    many.putpixel((10, 10), (255, 80, 60))
    original = io.BytesIO()
    many.save(original, "png")
    script("record-console").write_small(original.getvalue(), tmp_path / "small.png")
    written = Image.open(tmp_path / "small.png")
    assert written.mode == "P"
    kept = written.convert("RGB").getpixel((10, 10))
    assert isinstance(kept, tuple)
    assert all(abs(one - other) < 16 for one, other in zip(kept, (255, 80, 60), strict=True))


def test_the_pages_show_each_screen_that_is_recorded_light_and_dark() -> None:
    screens = script("record-console").SCREENS
    expected = {f"console-{name}-{scheme}.png" for name in screens for scheme in ("light", "dark")}
    assert expected == {file.name for file in (DOCS / "images").glob("console-*.png")}


def test_the_licence_is_the_one_that_the_package_declares() -> None:
    assert "Apache License\n                           Version 2.0" in (REPOSITORY / "LICENSE").read_text()
    assert 'license = "Apache-2.0"' in (REPOSITORY / "pyproject.toml").read_text()
