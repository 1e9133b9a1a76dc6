"""`/api/raw` over HTTP against a server process: downloads, ranges, uploads and what may not be reached."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from support.files_server import KEYS, ServedFiles, code_of, served_files
from support.trees import empty
from support.waiting import eventually, wait_until

CANARY = "canary-51d0-of-a-hidden-file"
LIMIT = 600_000_000
ROOTS = [
    {"name": "guarded", "allowed_tools": ["*"], "read_only": True},
    {"name": "listed", "allowed_tools": ["list_folder"]},
    {"name": "staffed", "allowed_tools": ["*"], "groups": ["staff"]},
    {"name": "hiding", "allowed_tools": ["*"], "ignore": ["*.secret"]},
]
RAW = "/api/raw"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFiles]:
    base = tmp_path_factory.mktemp("served")
    (base / "outside.txt").write_text(CANARY)
    with served_files(base, ROOTS, sandbox={"max_upload_size": LIMIT}) as files:
        yield files


@pytest.fixture
def work(served: ServedFiles) -> Path:
    """The directory of the root, empty."""
    empty(served.root())
    return served.root()


@pytest.fixture
def api(served: ServedFiles, work: Path) -> Iterator[httpx.Client]:
    with served.http() as http:
        yield http


def of(path: str, **more: Any) -> dict[str, Any]:
    return {"ref": f"root://work/{path}", **more}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def staged_in(directory: Path) -> list[str]:
    """What is in the directory and below, hidden or not."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_a_file_comes_as_it_is_with_its_type_and_its_name(api: httpx.Client, work: Path) -> None:
    content = bytes(range(256)) * 3000
    (work / "pixel.png").write_bytes(content)
    answer = api.get(RAW, params=of("pixel.png"))
    assert (answer.status_code, answer.content) == (200, content)
    expected = {
        "content-type": "image/png",
        "content-length": str(len(content)),
        "content-disposition": 'inline; filename="pixel.png"',
        "content-security-policy": "sandbox",
        "x-content-type-options": "nosniff",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "private, no-cache",
        "accept-ranges": "bytes",
    }
    assert {name: answer.headers[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("name", "content_type", "shown"),
    [
        ("a.html", "text/plain; charset=utf-8", "inline"),
        ("a.xhtml", "text/plain; charset=utf-8", "inline"),
        ("a.js", "text/plain; charset=utf-8", "inline"),
        ("A.PDF", "application/pdf", "inline"),
        ("a.svg", "image/svg+xml", "inline"),
        ("a.mp3", "audio/mpeg", "inline"),
        ("a.exe", "application/octet-stream", "attachment"),
        ("README", "application/octet-stream", "attachment"),
        (".png", "application/octet-stream", "attachment"),
    ],
)
def test_no_type_lets_a_browser_execute_the_file(
    api: httpx.Client, work: Path, name: str, content_type: str, shown: str
) -> None:
    (work / name).write_bytes(b"<script>alert(1)</script>")
    answer = api.get(RAW, params=of(name))
    assert answer.headers["content-type"] == content_type
    assert answer.headers["content-disposition"].partition(";")[0] == shown
    assert answer.headers["content-security-policy"].startswith("sandbox")
    saved = api.get(RAW, params=of(name, download="1"))
    assert saved.headers["content-disposition"].startswith("attachment; ")


@pytest.mark.parametrize(
    ("name", "disposition"),
    [
        (b"caf\xc3\xa9.txt", "inline; filename=\"caf_.txt\"; filename*=UTF-8''caf%C3%A9.txt"),
        (b"caf\xe9.txt", "inline; filename=\"caf_.txt\"; filename*=UTF-8''caf%EF%BF%BD.txt"),
        (
            b'a"\r\nset-cookie: b.txt',
            "inline; filename=\"a___set-cookie_ b.txt\"; filename*=UTF-8''a%22%0D%0Aset-cookie%3A%20b.txt",
        ),
    ],
)
def test_any_name_of_a_file_is_told_safely(api: httpx.Client, work: Path, name: bytes, disposition: str) -> None:
    with open(os.fsencode(work) + b"/" + name, "wb") as file:
        file.write(b"tea")
    quoted = "".join(f"%{byte:02X}" for byte in name)
    answer = api.get(RAW, params=of(quoted))
    assert (answer.status_code, answer.content) == (200, b"tea")
    assert answer.headers["content-disposition"] == disposition
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("asked", "status", "content", "content_range"),
    [
        ("bytes=0-2", 206, b"012", "bytes 0-2/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=-0", 416, None, "bytes */10"),
        ("bytes=5-3", 200, b"0123456789", None),
        ("bytes=0-1,3-4", 200, b"0123456789", None),
        ("bytes=-", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
        ("bytes=" + "9" * 25 + "-", 200, b"0123456789", None),
    ],
)
def test_a_range_of_a_file(
    api: httpx.Client, work: Path, asked: str, status: int, content: bytes | None, content_range: str | None
) -> None:
    (work / "a.bin").write_bytes(b"0123456789")
    answer = api.get(RAW, params=of("a.bin"), headers={"range": asked})
    assert (answer.status_code, answer.headers.get("content-range")) == (status, content_range)
    if content is None:
        assert code_of(answer) == "RANGE_NOT_SATISFIABLE"
    else:
        assert answer.content == content


def test_what_a_client_has_already_is_not_sent_again(api: httpx.Client, work: Path) -> None:
    (work / "a.txt").write_bytes(b"0123456789")
    etag = api.get(RAW, params=of("a.txt")).headers["etag"]
    assert re.fullmatch(r'"[0-9a-f]{32}"', etag)
    for known in (etag, f'"other", W/{etag}', "*"):
        again = api.get(RAW, params=of("a.txt"), headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    part = {"range": "bytes=0-1", "if-range": etag}
    assert api.get(RAW, params=of("a.txt"), headers=part).status_code == 206
    (work / "a.txt").write_bytes(b"9876543210")
    assert api.get(RAW, params=of("a.txt"), headers=part).status_code == 200
    assert api.get(RAW, params=of("a.txt"), headers={"if-none-match": etag}).content == b"9876543210"


def test_the_head_of_a_file_has_its_size_and_no_content(api: httpx.Client, work: Path) -> None:
    (work / "a.txt").write_bytes(b"0123456789")
    head = api.head(RAW, params=of("a.txt"), headers={"range": "bytes=0-1"})
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "10", b"")
    (work / "empty.txt").touch()
    assert (api.get(RAW, params=of("empty.txt")).content, api.head(RAW, params=of("none")).status_code) == (b"", 404)


@pytest.mark.parametrize(
    ("ref", "status", "code"),
    [
        ("root://work/../outside.txt", 403, "PATH_ESCAPES_ROOT"),
        ("root://work/%2e%2e/outside.txt", 403, "PATH_ESCAPES_ROOT"),
        ("root://work/%2e%2e%2foutside.txt", 403, "PATH_ESCAPES_ROOT"),
        ("root://work//../outside.txt", 403, "PATH_ESCAPES_ROOT"),
        ("root://work/away.txt", 403, "PATH_ESCAPES_ROOT"),
        ("root://work/a%00b", 400, "INVALID_PATH"),
        ("root://work/.env", 403, "CREDENTIALS_HIDDEN"),
        ("root://work/link-to-env", 403, "CREDENTIALS_HIDDEN"),
        ("root://hiding/a.secret", 403, "PATH_IGNORED"),
        ("root://listed/a.txt", 403, "TOOL_NOT_ALLOWED"),
        ("root://none/a.txt", 404, "UNKNOWN_ROOT"),
        ("root://..%2f/outside.txt", 404, "UNKNOWN_ROOT"),
        ("root://work/.", 409, "IS_A_DIRECTORY"),
        ("root://work/none", 404, "NOT_FOUND"),
        ("root://work/pipe", 409, "NOT_A_REGULAR_FILE"),
        ("root://work/" + "a" * 5000, 400, "INVALID_PATH"),
        ("root://work/", 400, "INVALID_ARGUMENT"),
        ("root://work", 400, "INVALID_ARGUMENT"),
        ("file:///etc/passwd", 400, "INVALID_ARGUMENT"),
        ("/etc/passwd", 400, "INVALID_ARGUMENT"),
        ("", 400, "INVALID_ARGUMENT"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_hostile_reference_reaches_nothing(
    served: ServedFiles, api: httpx.Client, work: Path, method: str, ref: str, status: int, code: str
) -> None:
    (work / ".env").write_text(CANARY)
    (work / "link-to-env").symlink_to(".env")
    (work / "away.txt").symlink_to("../outside.txt")
    os.mkfifo(work / "pipe")
    (served.root("hiding") / "a.secret").write_text(CANARY)
    (served.root("listed") / "a.txt").write_text(CANARY)
    before = staged_in(work)
    answer = api.request(method, RAW, params={"ref": ref}, content=b"x" if method == "PUT" else None)
    if method == "PUT" and code == "NOT_FOUND":
        assert answer.status_code == 201
        return
    assert (answer.status_code, code_of(answer)) == (status, code)
    assert CANARY not in answer.text
    assert str(served.base) not in answer.text
    assert staged_in(work) == before
    assert (served.base / "outside.txt").read_text() == CANARY


@pytest.mark.parametrize(
    "params",
    [
        {"ref": ["root://work/a.txt", "root://work/b.txt"]},
        {"ref": "root://work/a.txt", "path": "b.txt"},
        {"ref": "root://work/a.txt", "root": "guarded"},
        {"ref": "root://work/a.txt", "version": "1"},
        {"ref": "root://work/a.txt", "download": "yes"},
        {},
    ],
)
def test_a_reference_is_given_once_and_alone(api: httpx.Client, work: Path, params: dict[str, Any]) -> None:
    (work / "a.txt").write_text("a")
    answer = api.get(RAW, params=params)
    assert (answer.status_code, code_of(answer)) == (400, "INVALID_ARGUMENT")


def test_a_root_of_another_group_does_not_exist(served: ServedFiles) -> None:
    (served.root("staffed") / "a.txt").write_text(CANARY)
    there, nowhere = ({"ref": f"root://{name}/a.txt"} for name in ("staffed", "absent1"))
    with served.http("ann") as ann, served.http("ben") as ben:
        assert ann.get(RAW, params=there).text == CANARY
        hidden, absent = ben.get(RAW, params=there), ben.get(RAW, params=nowhere)
        assert (hidden.status_code, hidden.text.replace("staffed", "absent1")) == (absent.status_code, absent.text)
        assert ben.put(RAW, params=there, content=b"x").status_code == 404
    assert (served.root("staffed") / "a.txt").read_text() == CANARY
    assert httpx.get(f"{served.process.url}{RAW}", params=there).status_code == 401


def test_an_upload_creates_and_replaces_any_bytes(api: httpx.Client, work: Path) -> None:
    content = os.urandom(3_000_000)
    made = api.put(RAW, params=of("new/deep/a.bin"), content=content)
    assert made.status_code == 201
    assert made.json() == {
        "root": "work",
        "path": "new/deep/a.bin",
        "size": len(content),
        "mode": "overwrite",
        "created": True,
        "sha256": sha256(content),
    }
    assert (work / "new/deep/a.bin").read_bytes() == content
    again = api.put(RAW, params=of("new/deep/a.bin", if_match=sha256(content)), content=iter([b"sh", b"ort"]))
    assert (again.status_code, again.json()["created"]) == (200, False)
    assert (work / "new/deep/a.bin").read_bytes() == b"short"
    assert staged_in(work) == ["new", "new/deep", "new/deep/a.bin"]


@pytest.mark.parametrize(
    ("path", "conditions", "status", "code"),
    [
        ("a.txt", {"create_only": "true"}, 409, "ALREADY_EXISTS"),
        ("a.txt", {"if_match": "0" * 64}, 409, "CONFLICT"),
        ("none.txt", {"if_match": "0" * 64}, 409, "CONFLICT"),
        (".git/hooks/pre-commit", {}, 403, "WRITE_DENIED"),
        ("a.txt/b", {}, 409, "NOT_A_DIRECTORY"),
        ("folder/", {}, 409, "IS_A_DIRECTORY"),
    ],
)
def test_an_upload_that_may_not_be_changes_nothing(
    api: httpx.Client, work: Path, path: str, conditions: dict[str, str], status: int, code: str
) -> None:
    (work / "a.txt").write_text("theirs")
    refused = api.put(RAW, params=of(path, **conditions), content=b"mine" * 100_000)
    assert (refused.status_code, code_of(refused)) == (status, code)
    assert (staged_in(work), (work / "a.txt").read_text()) == (["a.txt"], "theirs")


def test_an_upload_to_a_read_only_root_or_of_too_many_bytes_is_refused(served: ServedFiles, api: httpx.Client) -> None:
    refused = api.put(RAW, params={"ref": "root://guarded/a.txt"}, content=b"x")
    assert (refused.status_code, code_of(refused)) == (403, "READ_ONLY_ROOT")
    with socket.create_connection(("127.0.0.1", served.process.port)) as client:
        lines = [
            f"PUT {RAW}?ref=root://work/a.bin HTTP/1.1",
            "Host: 127.0.0.1",
            f"Authorization: Bearer {KEYS['ann']}",
            f"Content-Length: {LIMIT + 1}",
        ]
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")


async def test_an_upload_that_ends_early_changes_nothing(served: ServedFiles, work: Path) -> None:
    (work / "a.bin").write_bytes(b"before")
    with socket.create_connection(("127.0.0.1", served.process.port)) as client:
        lines = [
            f"PUT {RAW}?ref=root://work/a.bin HTTP/1.1",
            "Host: 127.0.0.1",
            f"Authorization: Bearer {KEYS['ann']}",
            "Content-Length: 1000000",
        ]
        client.sendall("\r\n".join([*lines, "", ""]).encode() + b"x" * 400_000)
        await eventually(lambda: len(staged_in(work)) == 2, what="the staged entry")

    async def recorded() -> bool:
        return any(call["code"] == "TRANSFER_ENDED" for call in served.calls(tool="receive_file"))

    await eventually(recorded, what="the record of the upload")
    await eventually(lambda: staged_in(work) == ["a.bin"], what="the end of the staged entry")
    assert (work / "a.bin").read_bytes() == b"before"


def test_large_files_pass_in_bounded_memory(served: ServedFiles, api: httpx.Client, work: Path) -> None:
    """Hundreds of megabytes in each direction, by a client that is not slower than the server."""
    size = 300_000_000
    with open(work / "big.bin", "wb") as file:
        file.truncate(size)
    process = psutil.Process(served.process.pid)
    api.get(RAW, params=of("big.bin"), headers={"range": "bytes=0-10000000"})
    before, most, received = process.memory_info().rss, 0, 0

    def watched(block: bytes) -> bytes:
        nonlocal most
        most = max(most, process.memory_info().rss)
        return block

    with api.stream("GET", RAW, params=of("big.bin")) as answer:
        for block in answer.iter_raw(1 << 20):
            received += len(watched(block))
    assert received == size
    sent = api.put(RAW, params=of("copy.bin"), content=(watched(b"y" * 1_000_000) for _ in range(200)), timeout=120)
    assert (sent.status_code, (work / "copy.bin").stat().st_size) == (201, 200_000_000)
    assert most - before < 60_000_000


def test_a_file_that_shrinks_while_it_is_sent_never_looks_complete(api: httpx.Client, work: Path) -> None:
    with open(work / "big.bin", "wb") as file:
        file.truncate(200_000_000)
    received = 0
    with (  # noqa: PT012 the error may come with any block
        pytest.raises(httpx.RemoteProtocolError),
        api.stream("GET", RAW, params=of("big.bin")) as answer,
    ):
        for block in answer.iter_raw(1 << 20):
            received += len(block)
            os.truncate(work / "big.bin", 10)
    assert received < 200_000_000


async def test_a_client_that_hangs_up_ends_its_download(served: ServedFiles, work: Path) -> None:
    with open(work / "big.bin", "wb") as file:
        file.truncate(400_000_000)
    with served.http() as http, http.stream("GET", RAW, params=of("big.bin")) as answer:
        next(answer.iter_raw(1000))

    async def recorded() -> bool:
        found = served.calls(tool="send_file", status="error")
        return any((call["code"], call["path"]) == ("CANCELLED", "big.bin") for call in found)

    await eventually(recorded, what="the record of the cancelled call")
    process = psutil.Process(served.process.pid)
    wait_until(lambda: not any(each.path.endswith("big.bin") for each in process.open_files()), what="the closed file")


async def test_every_transfer_is_audited_with_its_size(served: ServedFiles, api: httpx.Client, work: Path) -> None:
    (work / "down.bin").write_bytes(b"x" * 100_000)
    api.get(RAW, params=of("down.bin"))
    api.put(RAW, params=of("up.bin"), content=b"secret content" * 10_000)
    api.get(RAW, params={"ref": "root://work/../x"})
    expected = {
        "down.bin": ("send_file", "work", None),
        "up.bin": ("receive_file", "work", None),
        "../x": ("send_file", "work", "PATH_ESCAPES_ROOT"),
    }
    by_path: dict[str, dict[str, Any]] = {}

    async def recorded() -> bool:
        calls = served.calls(capability="sandbox")
        assert "secret content" not in str(calls)
        by_path.update((call["path"], call) for call in calls)
        return expected.keys() <= by_path.keys()

    await eventually(recorded, what="the records of the transfers")
    for path, facts in expected.items():
        assert tuple(by_path[path][name] for name in ("tool", "root", "code")) == facts
    assert 100_000 <= by_path["down.bin"]["response_bytes"] < 101_000
    assert 140_000 <= by_path["up.bin"]["request_bytes"] < 141_000


def test_other_methods_and_pages_are_refused(served: ServedFiles, api: httpx.Client, work: Path) -> None:
    refused = api.post(RAW, params=of("a.txt"))
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD, PUT")
    foreign = api.get(RAW, params=of("a.txt"), headers={"origin": "http://evil.example"})
    assert foreign.status_code == 403


def test_the_routes_are_described(api: httpx.Client) -> None:
    document = api.get("/api/openapi.json").json()
    OpenAPIV31SpecValidator(document).validate()
    described = document["paths"][RAW]
    assert {each["name"] for each in described["get"]["parameters"]} >= {"ref", "download", "Range"}
    assert {each["name"] for each in described["put"]["parameters"]} == {"ref", "create_only", "if_match"}
    assert "/api/raw/{ticket}/{name}" in document["paths"]
    assert "/api/raw/tickets" in document["paths"]
