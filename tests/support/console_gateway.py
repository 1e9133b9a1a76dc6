"""The servers behind a gateway whose console is tested: quiet ones, one that wants a token, and a hostile one."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

from support.gateway_server import HOSTILE, rag_entry

Json = dict[str, Any]

TOKEN = "right-token-of-the-archive"
"""What the archive accepts."""
EVIL = "<img src=x onerror=\"document.title='ran'\">"
"""A name that runs if it is put into a page as HTML."""
REPORT = f"""<style>h1 {{ color: rgb(0, 128, 0) }}</style><h1>Tides of the year</h1>
<script>parent.document.title = "ran"; document.title = "ran"</script>{EVIL}
<form action="/api/session" method="post"><button id="send">send</button></form>
<a id="run" href="javascript:parent.document.title='ran'">run</a>"""


def _artifact(name: str, content: bytes, mime: str) -> Json:
    return {"name": name, "b64": base64.b64encode(content).decode(), "mime": mime}


PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
ATTACHED: Json = {
    "artifacts": [
        _artifact("tides.html", REPORT.encode(), "text/html"),
        _artifact("chart.png", PIXEL, "image/png"),
        _artifact(
            "notes.md", b"# High water\n\n[run](javascript:document.title='ran') **twice** a day", "text/markdown"
        ),
        _artifact("raw.bin", bytes(range(256)), "application/octet-stream"),
    ],
    "display": {"open_canvas": True, "primary_file": "tides.html"},
}


def hostile_resource(source_id: str, name: str) -> Json:
    return {"id": source_id, "name": name, "sourceType": EVIL, "authRequired": False, "authMode": "none"}


def write_servers(base: Path) -> Json:
    """Write the configuration of the servers. Returns the gateway's section of the settings."""
    folder = base / "overrides"
    folder.mkdir(parents=True)
    more = base / "attached.json"
    more.write_text(json.dumps({"rag_get_raw_results": ATTACHED, "rag_get_synthesized_results": ATTACHED}))
    evil = base / "evil.json"
    results = {"resources": [hostile_resource("evil", f"{EVIL}‮ javascript:alert(1)")]}
    evil.write_text(json.dumps({"rag_discover_resources": {"results": results}}))
    file_of = "--more={}".format
    rag: Json = {
        "notes": rag_entry(
            "harbour", "tides", file_of(more), ui={"displayName": "Harbour notes", "order": 1, "defaultSelected": True}
        ),
        "archive": rag_entry("letters", f"--bearer={TOKEN}", description="Letters since 1880.", ui={"order": 2}),
        "law": rag_entry("cases", "verdicts", "--refused=verdicts", ui={"order": 3}),
        "bad": rag_entry("evil", file_of(evil), description=f"{EVIL} bold", ui={"order": 4, "displayName": EVIL}),
        "broken": {
            "command": sys.executable, "args": ["-c", "raise SystemExit(3)"], "ui": {"order": 5},
            "dataSources": [{"id": "lost", "name": "Lost"}],
        },
    }  # fmt: skip
    (folder / "rag-mcp.json").write_text(json.dumps(rag))
    (folder / "mcp.json").write_text(json.dumps({"gadgets": HOSTILE | {"description": "Tools for tests."}}))
    return {"config_dir": str(base), "admin_commands": [sys.executable], "variables": ["HOME"]}
