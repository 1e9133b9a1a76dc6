"""What somebody else notices of an attack: asks `/health` and `stat_file` all the time, in a process of its own."""

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
PATIENCE_S = 120.0
PROTOCOL_VERSION = "2025-11-25"


class Caller:
    """One MCP session over bare HTTP; answers are read to their end, and only looked at when asked."""

    def __init__(self, port: int, key: str, timeout_s: float = PATIENCE_S) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
        self._headers = {
            "authorization": f"Bearer {key}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }

    def open(self) -> int:
        """Open a session; the status of the answer."""
        client = {"name": "hostile", "version": "1"}
        params = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client}
        response, _ = self._post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        if response.status == http.client.OK:
            session = response.headers["mcp-session-id"]
            self._headers |= {"mcp-session-id": session, "mcp-protocol-version": PROTOCOL_VERSION}
        return response.status

    def initialized(self) -> None:
        """Tell the server that the session is in use."""
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool; `ok`, the code of its error, or the status of a refusal."""
        params = {"name": tool, "arguments": arguments}
        response, body = self._post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        if response.status != http.client.OK:
            return str(response.status)
        if b'"isError":true' not in body[:4000] + body[-4000:]:
            return "ok"
        return json.loads(body)["result"]["structuredContent"]["error"]["code"]

    def health(self) -> None:
        """Ask whether the server is well."""
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
    """How long each answer took, until our standard input is closed."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    latencies: list[float] = []
    while not ended.is_set():
        started = time.perf_counter()
        with suppress(OSError):  # no answer within our patience is an answer that took as long
            ask()
        latencies.append(time.perf_counter() - started)
        ended.wait(PAUSE_S)
    return latencies


def main() -> None:
    """`hostile_watch.py health|stat PORT KEY`: the latencies, as JSON."""
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
