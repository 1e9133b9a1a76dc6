"""Files that a caller names in a call reach the server by a link, which gives access to nothing else."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from armarium.capabilities.gateway.downloads.files import NamedFile, parse_reference, read_file
from armarium.capabilities.gateway.downloads.links import DownloadLinks
from armarium.capabilities.gateway.errors import FileChangedMeanwhile
from armarium.foundation.security.identity import key_hash
from armarium.foundation.tools import Call
from support import fetching_upstream
from support.client import connected
from support.rag_fakes import ANNA, LEX
from support.server import ServerProcess, installed_command, write_config
from support.waiting import DEADLINE_S, eventually

Json = dict[str, Any]
PROGRAM = [sys.executable, "-I", str(Path(fetching_upstream.__file__))]
BINARY = bytes(range(256)) * 10
LARGE = os.urandom(2_500_000)
MAX_BYTES = 3_000_000
USERS = {"anna": ["users"], "guest": []}


@dataclass(frozen=True)
class Served:
    process: ServerProcess
    base: Path

    async def fetch(self, user: str = "anna", tool: str = "local.fetch", **arguments: Any) -> Json:
        """The structured result of the upstream's tool, or the error."""
        async with connected(self.process.url, key=f"key-of-{user}") as client:
            result = await client.mcp.call_tool(tool, arguments)
            assert result.structured_content is not None
            return result.structured_content

    async def link(self) -> str:
        return (await self.fetch(filename="root://work/a.txt"))["given"]["filename"]

    def get(self, address: str, **more: Any) -> httpx.Response:
        return httpx.get(address, timeout=DEADLINE_S, **more)


@contextmanager
def running(base: Path, *, sandbox: bool = True, **gateway: Any) -> Generator[Served]:
    work = base / "work"
    work.mkdir(exist_ok=True)
    (work / "a.txt").write_text("hello höhö\n")
    (work / "page one.html").write_text("<script>alert(1)</script>")
    (work / "data.bin").write_bytes(BINARY)
    (work / "large.bin").write_bytes(LARGE)
    (work / "huge.bin").write_bytes(bytes(MAX_BYTES + 1))
    (base / "secret.txt").write_text("canary-of-another-file")
    (work / "out.txt").symlink_to(base / "secret.txt")
    (base / "closed").mkdir(exist_ok=True)
    (base / "closed/b.txt").write_text("cannot be read")
    (base / "config/overrides").mkdir(parents=True, exist_ok=True)
    with subprocess.Popen([*PROGRAM, "--http"], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            port = other.stdout.readline().strip()
            entries = {
                "local": {"command": PROGRAM[0], "args": PROGRAM[1:]},
                "web": {"url": f"http://127.0.0.1:{port}/mcp", "groups": ["users"]},
            }
            (base / "config/overrides/mcp.json").write_text(json.dumps(entries))
            keys = [
                {"username": user, "groups": groups, "key_sha256": key_hash(f"key-of-{user}")}
                for user, groups in USERS.items()
            ]
            roots = [
                {"name": "work", "path": str(work), "allowed_tools": ["read_file", "write_file", "list_folder"]},
                {"name": "closed", "path": str(base / "closed"), "allowed_tools": ["list_folder"]},
            ]
            settings = {
                "state_dir": str(base / "state"),
                "server": {"port": 0},
                "security": {"auth": "keys", "keys": keys},
                "telemetry": {"log_level": "debug"},
                **({"sandbox": {"roots": roots}} if sandbox else {}),
                "gateway": {
                    "config_dir": str(base / "config"), "downloads": {"max_bytes": MAX_BYTES, **gateway}
                },
            }  # fmt: skip
            command = [installed_command("armarium"), "serve", "--config", str(write_config(base, settings))]
            with ServerProcess(command) as process:
                yield Served(process, base)
        finally:
            other.kill()


async def tools_listed(served: Served, *names: str) -> None:
    async def listed() -> bool:
        async with connected(served.process.url, key="key-of-anna") as client:
            return {*names} <= {tool.name for tool in (await client.mcp.list_tools()).tools}

    await eventually(listed)


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running(tmp_path_factory.mktemp("downloads")) as served:
        await tools_listed(served, "local.fetch", "web.fetch")
        yield served


@pytest.mark.contract("G10-1")
@pytest.mark.parametrize("tool", ["local.fetch", "web.fetch"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("root://work/a.txt", "hello höhö\n".encode()),
        ("work/a.txt", "hello höhö\n".encode()),
        ("root://work/data.bin", BINARY),
        ("root://work/large.bin", LARGE),
        ("root://work/page%20one.html", b"<script>alert(1)</script>"),
    ],
)
async def test_a_server_fetches_the_file_that_a_caller_names(
    server: Served, tool: str, name: str, content: bytes
) -> None:
    found = await server.fetch(tool=tool, filename=name)
    assert base64.b64decode(found["file"]["b64"]) == content
    assert found["given"]["original_filename"] == name
    headers = {name.lower(): value for name, value in found["file"]["headers"].items()}
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"].startswith("attachment; filename=")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    address = urlsplit(found["given"]["filename"])
    assert address.path.startswith("/api/files/download/")


@pytest.mark.contract("G10-1")
async def test_several_files_are_linked_and_other_names_stay_as_they_are(server: Served) -> None:
    names = ["root://work/a.txt", "own-file.csv", "nowhere/a.txt", "work/missing.txt", "https://example.org/x"]
    found = await server.fetch(file_names=names)
    given = found["given"]["file_names"]
    assert base64.b64decode(found["files"][0]["b64"]) == "hello höhö\n".encode()
    assert given[1:] == names[1:]
    assert found["given"]["file_urls"] == given
    untouched = await server.fetch(tool="local.read", path="root://work/a.txt")
    assert untouched["given"] == {"path": "root://work/a.txt"}, "only arguments of those names are links"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("root://work/missing.txt", "NOT_FOUND"),
        ("root://nowhere/a.txt", None),
        ("root://work/../secret.txt", None),
        ("root://work/%2e%2e/secret.txt", None),
        ("root://work/out.txt", None),
        ("root://closed/b.txt", None),
        ("root://work/huge.bin", "file_too_large"),
    ],
)
async def test_a_file_that_the_caller_may_not_read_is_not_linked(server: Served, name: str, code: str | None) -> None:
    refused = await server.fetch(filename=name)
    assert "given" not in refused, "the server was not called"
    assert code is None or refused["error"]["code"] == code
    assert str(server.base) not in json.dumps(refused)


@pytest.mark.contract("G7-4")
async def test_a_link_gives_access_to_one_file_and_nothing_else(server: Served) -> None:
    link = await server.link()
    assert server.get(link).text == "hello höhö\n"
    address = urlsplit(link)
    token = address.query.removeprefix("token=")
    root = f"http://{address.netloc}"
    for other in (
        f"{root}/api/files/download/data.bin?token={token}",
        f"{root}/api/files/download/..%2fsecret.txt?token={token}",
        f"{root}/api/files/download/a.txt?token={token}x",
        f"{root}/api/files/download/a.txt?token=%ff",
        f"{root}/api/files/download/a.txt",
    ):
        refused = server.get(other)
        assert refused.status_code in (401, 410), other
        assert "hello" not in refused.text
    for path in ("/api/config", "/api/rag/selection", "/mcp", "/api/openapi.json", "/metrics"):
        assert server.get(f"{root}{path}", params={"token": token}).status_code == 401
        assert server.get(f"{root}{path}", headers={"authorization": f"Bearer {token}"}).status_code == 401
    assert httpx.post(link, json={}).status_code in (401, 405)
    head = httpx.head(link)
    assert (head.status_code, head.content) == (200, b"")
    rebound = server.get(link, headers={"host": "evil.example"})
    assert rebound.status_code == 403
    assert server.get(link).status_code == 200, "it can be fetched again, until it expires"


async def test_a_link_does_not_outlive_the_file_or_what_the_caller_may_read(server: Served) -> None:
    (server.base / "work/gone.txt").write_text("soon gone")
    link = (await server.fetch(filename="root://work/gone.txt"))["given"]["filename"]
    (server.base / "work/gone.txt").unlink()
    (server.base / "work/gone.txt").symlink_to(server.base / "secret.txt")
    refused = server.get(link)
    assert refused.status_code >= 400
    assert "canary" not in refused.text


async def test_downloads_are_recorded_without_their_tokens(server: Served) -> None:
    link = await server.link()
    token = urlsplit(link).query.removeprefix("token=")
    assert server.get(link).status_code == 200
    line = server.process.wait_for_log(lambda line: line.get("tool") == "gateway_download")
    assert (line["principal"], line["path"]) == ("anna", "a.txt")
    written = b"".join(file.read_bytes() for file in (server.base / "state").rglob("*") if file.is_file())
    assert b"gateway_download" in written
    assert token not in server.process.said()
    assert token.encode() not in written


@pytest.mark.contract("G7-4")
async def test_a_restart_a_changed_server_and_time_end_a_link(tmp_path: Path) -> None:
    with running(tmp_path, ttl_s=3600) as served:
        await tools_listed(served, "local.fetch")
        link = await served.link()
        assert served.get(link).status_code == 200
        entry = tmp_path / "config/overrides/mcp.json"
        entries = json.loads(entry.read_text())
        entries["local"]["env"] = {"CHANGED": "1"}
        entry.write_text(json.dumps(entries))

        async def refused() -> bool:
            return served.get(link).status_code == 410

        await eventually(refused)
        assert served.get(link).json()["code"] == "link_expired"
    now = 0.0
    links = DownloadLinks(ttl_s=60, clock=lambda: now)
    path = links.issue(ANNA, "one", NamedFile("root", "work", "a.txt"))
    token = path.partition("token=")[2]
    assert links.find("a.txt", token) is not None
    now = 60.0
    assert links.find("a.txt", token) is None
    assert DownloadLinks(ttl_s=60, clock=lambda: now).find("a.txt", token) is None, "as after a restart"


async def test_without_the_sandbox_there_are_no_files_to_link(tmp_path: Path) -> None:
    with running(tmp_path, sandbox=False) as served:
        await tools_listed(served, "local.fetch")
        for name in ("root://work/a.txt", "work/a.txt"):
            assert (await served.fetch(filename=name))["given"] == {"filename": name}


def test_links_of_one_caller_do_not_remove_those_of_another() -> None:
    links = DownloadLinks(ttl_s=60)
    file = NamedFile("root", "work", "a.txt")
    kept = links.issue(LEX, "one", file).partition("token=")[2]
    for _ in range(1_100):
        links.issue(ANNA, "one", file)
    assert links.find("a.txt", kept) is not None


@pytest.mark.parametrize("name", ["", ".", "..", ".env", "a/b", 'x"y', "x\r\ny", "é" * 300, "\ud800"])
def test_the_name_in_a_link_is_safe_in_an_address_and_a_header(name: str) -> None:
    path = DownloadLinks(ttl_s=60).issue(ANNA, "one", NamedFile("root", "work", f"sub/{name}"))
    shown = path.partition("?")[0].rpartition("/")[2]
    assert shown.isascii()
    assert shown.strip(".")
    assert '"' not in shown


@pytest.mark.parametrize("text", ["", "root://", "root://work", "root:///a", "file:///etc/passwd", "http://x/y", "a/b"])
def test_other_texts_are_no_references(text: str) -> None:
    assert parse_reference(text) is None


async def test_a_file_that_changes_while_it_is_read_is_an_error() -> None:
    sizes = iter([10, 12])

    async def run_tool(name: str, arguments: Any) -> tuple[Json, None]:
        return {"structuredContent": {"content": "12345", "encoding": "utf-8", "size": next(sizes)}}, None

    with pytest.raises(FileChangedMeanwhile):
        await read_file(Call(ANNA, run_tool=run_tool), NamedFile("root", "work", "a"), 100)
