"""A hostile directory: broken files are reported, the others are indexed, and no secret is stored."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from support.client import ToolClient, connected
from support.corpus import CorpusProcess

CANARY = "ghp_" + "Canary0123456789Canary0123456789abcd"
AWS_SECRET = "aws_secret_access_key = " + "wJalrXUtnFEMI" + "/K7MDENGbPxRfiCYzzzzzzKEY"


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def write_hostile(root: Path) -> None:
    (root / "good.md").write_text("# Good\n\nThe only honest file says marmalade.\n")
    (root / "token.txt").write_text(f"token here: {CANARY}\n")
    (root / "keys.ini").write_text(f"[default]\n{AWS_SECRET}\n")
    (root / "page.html").write_text(f"<p>harmless</p><!-- {CANARY} -->\n")
    (root / "secrets.zip").write_bytes(
        zipped(**{"inner.txt": CANARY.encode(), "fine.md": b"Inside is quince jelly.\n"})
    )
    (root / "bomb.zip").write_bytes(zipped(**{f"spaces{number}.txt": b" " * 15_000_000 for number in range(20)}))
    (root / "giant.zip").write_bytes(zipped(**{"giant.txt": b" " * 50_000_000}))
    slip = io.BytesIO()
    with zipfile.ZipFile(slip, "w") as archive:
        archive.writestr("../../escaped.md", "slipped out")
        archive.writestr("/absolute.md", "slipped out")
        archive.writestr("inside.md", "Damsons stayed inside.\n")
    (root / "slip.zip").write_bytes(slip.getvalue())
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:gz") as archive:
        for name in ("../tar-escaped.md", "notes/plum.md"):
            content = b"Plums in a tarball.\n"
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("link.md")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    (root / "notes.tar.gz").write_bytes(tar.getvalue())
    (root / "truncated.zip").write_bytes(zipped(**{"a.md": b"x" * 1000})[:60])
    (root / "lies.pdf").write_bytes(b"%PDF-1.7\n1 0 obj\n<< /Length 999999999 >>\nstream\nshort\nendstream\n%%EOF")
    # A hundred chunks show it; that a line may be as long as a file is the chunker's test.
    (root / "one-line.txt").write_bytes(b"word " * 50_000)
    with open(root / "huge.txt", "wb") as file:
        file.write(b"a line without an end " * 1000)
        file.truncate(1_000_000_000)
    (root / "loop").symlink_to(".")
    (root / "outside").symlink_to("/etc")
    os.mkfifo(root / "pipe.md")
    with open(os.fsencode(root) + b"/invalid-\xff.md", "wb") as file:
        file.write(b"Not a name that can be sent.\n")
    (root / "line\nbreak.md").write_text("Nor this one.\n")
    (root / "latin.txt").write_bytes("Der Käse schmeckt süß, sagte die Müllerin über die Brötchen.\n".encode("cp1252"))
    deep = root
    for number in range(60):
        deep = deep / f"d{number}"
    deep.mkdir(parents=True)
    (deep / "deep.md").write_text("Medlars lie deepest.\n")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Generator[CorpusProcess]:
    root = tmp_path_factory.mktemp("hostile")
    write_hostile(root)
    with CorpusProcess(root) as process:
        process.wait_until_indexed()
        yield process


async def call(hostile: CorpusProcess, tool: str, **arguments: Any) -> dict[str, Any]:
    async with connected(hostile.url, key=hostile.token) as client:
        return await _answer(client, tool, arguments)


async def _answer(client: ToolClient, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return (await client.result(f"dir2mcp.{tool}", arguments)).structured_content or {}


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("marmalade", "good.md"),
        ("quince jelly", "secrets.zip!/fine.md"),
        ("Damsons", "slip.zip!/inside.md"),
        ("Plums in a tarball", "notes.tar.gz!/notes/plum.md"),
        ("Käse Brötchen", "latin.txt"),
        ("Medlars", "/".join(f"d{number}" for number in range(60)) + "/deep.md"),
    ],
)
async def test_what_is_good_is_found(hostile: CorpusProcess, query: str, path: str) -> None:
    found = await call(hostile, "search", query=query, k=1)
    assert [hit["rel_path"] for hit in found["hits"]] == [path]


async def test_what_is_broken_or_excluded_is_listed_with_its_status(hostile: CorpusProcess) -> None:
    listed = await call(hostile, "list_files", limit=5000)
    status = {file["rel_path"]: file["status"] for file in listed["files"]}
    assert status["token.txt"] == "skipped"
    assert status["keys.ini"] == "skipped"
    assert status["page.html"] == "skipped"
    assert status["secrets.zip!/inner.txt"] == "skipped"
    assert status["huge.txt"] == "skipped"
    assert status["bomb.zip"] == "error"
    assert status["giant.zip!/giant.txt"] == "skipped"
    assert status["truncated.zip"] == "error"
    assert status["lies.pdf"] == "error"
    assert status["one-line.txt"] == "ok"
    assert not any("escaped" in path or "absolute" in path for path in status if status[path] == "ok")
    assert not any(path.startswith(("loop/", "outside/", "pipe")) for path in status)


def test_what_could_not_be_indexed_is_told_as_an_event(hostile: CorpusProcess) -> None:
    told = {
        event["data"]["rel_path"]: event["data"]["code"] for event in hostile.events if event["event"] == "file_error"
    }
    assert told["bomb.zip"] == "FILE_TOO_LARGE"
    assert told["lies.pdf"] == "EXTRACT_FAILED"
    assert told["token.txt"] == "FORBIDDEN"
    assert not any("invalid-" in path for path in told)
    assert any("break.md" in path for path in told)


def test_a_secret_is_nowhere_in_the_state_nor_in_what_was_said(hostile: CorpusProcess) -> None:
    said = "".join(map(str, hostile.events)) + "".join(hostile.log)
    for secret in (CANARY, AWS_SECRET.split()[-1]):
        assert secret not in said
        for file in hostile.state_dir.rglob("*"):
            if file.is_file():
                assert secret.encode() not in file.read_bytes(), file
                assert secret[4:].lower().encode() not in file.read_bytes(), file


@pytest.mark.parametrize("path", ["token.txt", "keys.ini", "page.html", "secrets.zip!/inner.txt"])
async def test_a_file_with_a_secret_is_not_opened(hostile: CorpusProcess, path: str) -> None:
    refused = await call(hostile, "open_file", rel_path=path)
    assert refused["error"]["code"] == "FORBIDDEN"
    assert CANARY not in str(refused)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("outside/passwd", "PATH_OUTSIDE_ROOT"),
        ("pipe.md", "FILE_NOT_FOUND"),
        ("huge.txt", "FILE_TOO_LARGE"),
        ("bomb.zip", "DOC_TYPE_UNSUPPORTED"),
        ("slip.zip!/../../escaped.md", "PATH_OUTSIDE_ROOT"),
        ("slip.zip!/missing.md", "FILE_NOT_FOUND"),
    ],
)
async def test_open_file_stays_inside_and_small(hostile: CorpusProcess, path: str, code: str) -> None:
    assert (await call(hostile, "open_file", rel_path=path))["error"]["code"] == code


async def test_a_member_of_an_archive_is_opened_by_lines(hostile: CorpusProcess) -> None:
    opened = await call(hostile, "open_file", rel_path="notes.tar.gz!/notes/plum.md", start_line=1, end_line=1)
    assert opened["content"] == "Plums in a tarball."


def test_nothing_in_the_directory_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("types", "queue", "zlib", "logging", "orjson", "re2", "numpy", "armarium"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'was-run')!r}, 'w').close()\nraise SystemExit(3)\n")
    (tmp_path / "a.md").write_text("Quinces are yellow.\n")
    monkeypatch.chdir(tmp_path)
    with CorpusProcess(tmp_path) as process:
        counts = process.wait_until_indexed()
    assert counts["errors"] == 0
    assert counts["indexed"] == 9
    assert not (tmp_path / "was-run").exists()
