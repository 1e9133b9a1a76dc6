"""Measures the latency of `/health` and `stat_file` for other callers during an attack, in a separate process."""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

PAUSE_S = 0.01
TIMEOUT_S = 120.0
PROTOCOL_VERSION = "2025-11-25"


class Caller:
    """One MCP session over plain HTTP. Responses are read completely but parsed only on request."""

    def __init__(self, port: int, key: str, timeout_s: float = TIMEOUT_S) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
        self._headers = {
            "authorization": f"Bearer {key}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }

    def open(self) -> int:
        """Open a session. Returns the status of the response."""
        client = {"name": "hostile", "version": "1"}
        params = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client}
        response, _ = self._post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        if response.status == http.client.OK:
            session = response.headers["mcp-session-id"]
            self._headers |= {"mcp-session-id": session, "mcp-protocol-version": PROTOCOL_VERSION}
        return response.status

    def initialized(self) -> None:
        """Send the `initialized` notification."""
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool. Returns `ok`, the code of the error, or the HTTP status."""
        params = {"name": tool, "arguments": arguments}
        response, body = self._post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        if response.status != http.client.OK:
            return str(response.status)
        if b'"isError":true' not in body[:4000] + body[-4000:]:
            return "ok"
        return json.loads(body)["result"]["structuredContent"]["error"]["code"]

    def health(self) -> None:
        """Request `/health`."""
        self._request("GET", "/health")

    def close(self) -> None:
        self._connection.close()

    def _post(self, message: dict[str, Any]) -> tuple[http.client.HTTPResponse, bytes]:
        return self._request("POST", "/mcp", json.dumps(message).encode(), self._headers)

    def _request(self, *request: Any) -> tuple[http.client.HTTPResponse, bytes]:
        try:
            self._connection.request(*request)
            response = self._connection.getresponse()
            return response, response.read()
        except OSError:
            self._connection.close()  # the next request connects again
            raise


def watch(ask: Callable[[], object]) -> list[float]:
    """The latency of each response, until standard input is closed."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    latencies: list[float] = []
    while not ended.is_set():
        started = time.perf_counter()
        with suppress(OSError):  # a timeout counts as a response that took as long
            ask()
        latencies.append(time.perf_counter() - started)
        ended.wait(PAUSE_S)
    return latencies


def main() -> None:
    """`hostile_watch.py health|stat PORT KEY`: print the latencies as JSON."""
    what, port, key = sys.argv[1:4]
    caller = Caller(int(port), key)
    if what == "stat":
        assert caller.open() == http.client.OK
        caller.initialized()
        ask: Callable[[], object] = lambda: caller.call("stat_file", {"root": "work", "path": "two"})  # noqa: E731
    else:
        ask = caller.health
    ask()
    print("ready", flush=True)
    json.dump(watch(ask), sys.stdout)


if __name__ == "__main__":
    main()
