"""An MCP server that misbehaves on demand, over stdio or HTTP; run as a program, with nothing but the standard library.

Each tool is a way to misbehave: `echo`, `slow`, `never`, `garbage`, `noise`, `huge`, `die`, `lie`, `refuse`, `grow`,
`forget`, `progress`, `spawn`, `fail` (its error quotes its arguments), `half` (an unpaired surrogate), `bytes` (no
UTF-8), `facts` (what it has seen, for the test to look at).
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
Send = Callable[[Json], None]

TOOLS = ["echo", "slow", "never", "garbage", "noise", "huge", "die", "lie", "refuse", "grow", "forget", "progress"]
TOOLS += ["spawn", "fail", "facts", "half", "bytes"]
ODD_TOOLS: list[Any] = [
    {"name": "", "inputSchema": {"type": "object"}},
    {"name": "with spaces", "inputSchema": {"type": "object"}},
    {"name": "with\nbreak", "inputSchema": {"type": "object"}},
    {"name": "x" * 200, "inputSchema": {"type": "object"}},
    {"name": "echo", "inputSchema": {"type": "object"}},
    {"name": "text", "inputSchema": {"type": "string"}},
    {"name": "list", "inputSchema": ["object"]},
    {"name": "bare"},
    {"name": "output", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}},
    {"name": "title", "inputSchema": {"type": "object"}, "title": 7},
    {"name": 8, "inputSchema": {"type": "object"}},
    "not a tool",
]


class Hostile:
    """The behaviour of the server over either transport."""

    def __init__(self, emit_raw: Callable[[bytes], None], announce: Send, listed: list[Any]) -> None:
        self.emit_raw = emit_raw
        self.announce = announce
        self.tools = list(TOOLS)
        self.listed = listed
        self.cancelled: list[int] = []
        self.calls = 0
        self.unanswered = 0
        self.sessions: set[str] = set()

    def answer(self, message: Json, send: Send) -> Json | None:
        """The response to a request; None for no response."""
        method, request_id = message["method"], message.get("id")
        if method == "initialize":
            return self._result(
                request_id,
                {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": "hostile", "version": "1"},
                },
            )
        if method == "notifications/cancelled":
            self.cancelled.append(message["params"]["requestId"])
        if request_id is None:
            return None
        if method == "tools/list":
            schema = {"type": "object", "properties": {}}
            tools = [{"name": name, "inputSchema": schema} for name in self.tools]
            return self._result(request_id, {"tools": tools + self.listed})
        if method == "tools/call":
            self.calls += 1
            return self._call(request_id, message["params"], send)
        return self._error(request_id, -32601, "no such method")

    def _call(self, request_id: int, params: Json, send: Send) -> Json | None:
        name, given = params["name"], params.get("arguments") or {}
        if name == "echo":
            return self._said(request_id, given)
        if name == "slow":
            time.sleep(given["seconds"])
            return self._said(request_id, {"slept": given["seconds"]})
        if name == "never":
            self.unanswered += 1
            return None
        if name == "garbage":
            self.emit_raw(b'{"jsonrpc": "2.0", "id": oops]\n')
            return None
        if name == "noise":
            self.emit_raw(b"starting up...\n\x00\xff\xfe not text\n[1, 2]\n\n{}\n" + b"x" * 100_000 + b"\n")
            self.emit_raw(b'{"id": %d, "error": "a log"}\n' % request_id)
            self.emit_raw(b'{"jsonrpc": "2.0", "id": %d, "method": "a/request", "params": oops}\n' % request_id)
            return self._said(request_id, {"noisy": True})
        if name == "huge":
            answer = self._result(request_id, {"content": [{"type": "text", "text": "h" * given["bytes"]}]})
            return answer if given.get("id_first") else {key: answer[key] for key in ("result", "jsonrpc", "id")}
        if name == "half":
            return self._said(request_id, {"text": "half \ud83d of it"})
        if name == "bytes":
            content = b'[{"type": "text", "text": "\xed\xa0\xbd \xff"}]'
            self.emit_raw(b'{"jsonrpc": "2.0", "id": %d, "result": {"content": %b}}\n' % (request_id, content))
            return None
        if name == "unreadable":
            self.emit_raw(b'{"jsonrpc": "2.0", "id": %d, "result": %b}\n' % (request_id, given["json"].encode()))
            return None
        if name == "die":
            os._exit(3)
        if name == "lie":
            return self._result(request_id, {"content": "not a list", "isError": "perhaps"})
        if name == "refuse":
            return self._error(request_id, -32602, given["message"])
        if name == "grow":
            self.tools.append(f"grown_{len(self.tools)}")
            self.announce({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            return self._said(request_id, {"tools": len(self.tools)})
        if name == "forget":
            self.sessions.clear()
            return self._said(request_id, {})
        if name == "progress":
            token = params["_meta"]["progressToken"]
            for step in (1, 2):
                said = " ".join([f"step {step}", *filter(None, [given.get("message")])])
                send(
                    {
                        "jsonrpc": "2.0",
                        "method": "notifications/progress",
                        "params": {"progressToken": token, "progress": step, "total": 2, "message": said},
                    }
                )
            return self._said(request_id, {})
        if name == "fail":
            failed = self._said(request_id, {"wrong": given})
            failed["result"]["isError"] = True
            return failed
        if name == "spawn":
            own_session = bool(given.get("own_session"))
            process = subprocess.Popen(["sleep", "600"], start_new_session=own_session)
            return self._said(request_id, {"pid": process.pid})
        if name == "facts":
            print(f"asked for facts with {given.get('note')}", file=sys.stderr, flush=True)
            seen = {"calls": self.calls, "unanswered": self.unanswered, "cancelled": self.cancelled}
            return self._said(request_id, {**seen, "pid": os.getpid(), "env": dict(os.environ)})
        return self._error(request_id, -32602, "no such tool")

    def _said(self, request_id: int, structured: Json) -> Json:
        content = [{"type": "text", "text": json.dumps(structured)}]
        return self._result(request_id, {"content": content, "structuredContent": structured})

    @staticmethod
    def _result(request_id: Any, result: Json) -> Json:
        return {"jsonrpc": "2.0", "id": request_id, "result": result}

    @staticmethod
    def _error(request_id: Any, code: int, message: str) -> Json:
        return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


def serve_stdio(listed: list[Any]) -> None:
    """One thread per request, so that a request that hangs does not block others."""
    lock = threading.Lock()

    def emit(raw: bytes) -> None:
        with lock:
            sys.stdout.buffer.write(raw)
            sys.stdout.buffer.flush()

    def send(message: Json) -> None:
        emit(json.dumps(message).encode() + b"\n")

    hostile = Hostile(emit, send, listed)

    def work(message: Json) -> None:
        answer = hostile.answer(message, send)
        if answer is not None:
            send(answer)

    for line in sys.stdin:
        threading.Thread(target=work, args=(json.loads(line),), daemon=True).start()


def serve_http(*, events: bool, port: int, notifications_refused: int, listed: list[Any], mounted: bool) -> None:
    """Streamable HTTP with JSON or, if requested, events. The port is the first line on standard output."""
    notifications: queue.Queue[Json] = queue.Queue()
    hostile = Hostile(lambda raw: None, notifications.put, listed)
    refusals = iter(range(notifications_refused))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            if next(refusals, None) is not None:
                return self._whole(503, b"later")
            self._start_events()
            while True:
                self._event(notifications.get())

        def do_DELETE(self) -> None:
            hostile.sessions.discard(self.headers.get("mcp-session-id", ""))
            self._whole(204, b"")

        def do_POST(self) -> None:
            if mounted and self.path == "/mcp":
                return self._redirect()
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            opening = message.get("method") == "initialize"
            session = os.urandom(8).hex() if opening else self.headers.get("mcp-session-id", "")
            if opening:
                hostile.sessions.add(session)
            elif session not in hostile.sessions:
                return self._whole(404, b"no such session", "text/plain")
            name = (message.get("params") or {}).get("name")
            if message["method"] == "tools/call" and name in ("garbage", "noise"):
                return self._whole(
                    200, b"<html>not MCP</html>", "application/json" if name == "garbage" else "text/html"
                )
            if "id" not in message:
                hostile.answer(message, notifications.put)
                return self._whole(202, b"")
            if events:
                return self._answer_in_events(message)
            answer = hostile.answer(message, notifications.put)
            if answer is None:
                threading.Event().wait()
            return self._whole(200, json.dumps(answer).encode(), "application/json", session)

        def _redirect(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(307)
            self.send_header("location", "/mcp/")
            self.send_header("content-length", "0")
            self.end_headers()

        def _answer_in_events(self, message: Json) -> None:
            session = self.headers.get("mcp-session-id") or next(iter(hostile.sessions))
            self._start_events(session)
            answer = hostile.answer(message, self._event)
            if answer is None:
                threading.Event().wait()
            else:
                self._event(answer)
            self.close_connection = True

        def _whole(self, status: int, body: bytes, kind: str = "text/plain", session: str | None = None) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            if session:
                self.send_header("mcp-session-id", session)
            self.end_headers()
            self.wfile.write(body)

        def _start_events(self, session: str | None = None) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            if session:
                self.send_header("mcp-session-id", session)
            self.end_headers()

        def _event(self, message: Json) -> None:
            self.wfile.write(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")
            self.wfile.flush()

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignore disconnected clients, which the tests provoke."""

    server = Server(("127.0.0.1", port), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--events", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--exit-at-start", action="store_true")
    parser.add_argument("--silent", action="store_true", help="never answer anything, nor end")
    parser.add_argument("--start-after", metavar="FILE", help="say nothing until the file exists")
    parser.add_argument("--babble", action="store_true", help="say something, but nothing in MCP, nor end")
    parser.add_argument(
        "--notifications-refused", type=int, default=0, metavar="TIMES", help="reject the notification stream at first"
    )
    parser.add_argument("--stubborn", action="store_true", help="end neither when asked nor when told")
    parser.add_argument("--many-tools", type=int, default=0, metavar="COUNT", help="list so many more")
    parser.add_argument("--odd-tools", action="store_true", help="list tools that no client could use")
    parser.add_argument("--invalid-schema", action="store_true", help="list a tool whose schema is invalid")
    parser.add_argument("--mounted", action="store_true", help="answer at /mcp/, and redirect /mcp there")
    options = parser.parse_args()
    listed = [*(ODD_TOOLS if options.odd_tools else [])]
    if options.invalid_schema:
        listed.append({"name": "invalid", "inputSchema": {"type": "object", "properties": {"x": {"type": 7}}}})
    listed += [{"name": f"many_{place}", "inputSchema": {"type": "object"}} for place in range(options.many_tools)]
    if options.exit_at_start:
        sys.exit(7)
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.babble:
        print("Listening on standard input...", flush=True)
    if options.silent or options.babble:
        threading.Event().wait()
    while options.start_after and not os.path.exists(options.start_after):
        time.sleep(0.01)
    if options.http:
        serve_http(
            events=options.events,
            port=options.port,
            notifications_refused=options.notifications_refused,
            listed=listed,
            mounted=options.mounted,
        )
    else:
        serve_stdio(listed)
    if options.stubborn:
        threading.Event().wait()


if __name__ == "__main__":
    main()
