"""An MCP server whose tools fetch what they are given by address; run as a program, with only the standard library.

`fetch` returns what is at `filename` and at each of `file_names`; `read` declares neither. Over stdio,
or with `--http` over HTTP: then it prints its port.
"""

from __future__ import annotations

import base64
import json
import sys
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
_TEXT = {"type": "string"}
_TOOLS = {
    "fetch": {
        "filename": _TEXT,
        "original_filename": _TEXT,
        "file_names": {"type": "array", "items": _TEXT},
        "file_urls": {"type": "array", "items": _TEXT},
    },
    "read": {"path": _TEXT},
}


def _get(address: str) -> Json:
    if not address.startswith("http://127.0.0.1"):
        return {"address": address}
    try:
        with urllib.request.urlopen(address, timeout=60) as response:
            content = base64.b64encode(response.read()).decode()
            return {"address": address, "status": response.status, "b64": content, "headers": dict(response.headers)}
    except urllib.error.HTTPError as error:
        return {"address": address, "status": error.code, "said": error.read().decode()}


def _result(method: str, params: Json) -> Json:
    if method == "initialize":
        about = {"name": "fetching", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        schemas = {name: {"type": "object", "properties": properties} for name, properties in _TOOLS.items()}
        return {"tools": [{"name": name, "inputSchema": schema} for name, schema in schemas.items()]}
    given = params.get("arguments", {})
    found = {
        "given": given,
        "file": _get(given["filename"]) if "filename" in given else None,
        "files": [_get(each) for each in given.get("file_names", ())],
    }
    return {"content": [], "structuredContent": found}


def _answer(message: Json) -> bytes:
    result = _result(message["method"], message.get("params") or {})
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = _answer(message) if "id" in message else b""
        self.send_response(200 if body else 202)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def main() -> None:
    if "--http" in sys.argv:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        print(server.server_address[1], flush=True)
        server.serve_forever()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            print(_answer(message).decode(), flush=True)


if __name__ == "__main__":
    main()
