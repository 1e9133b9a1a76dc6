"""A directory served by `dir2mcp up` in a process of its own, and one bare MCP client that asks it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import psutil

START_DEADLINE_S = 60.0
INDEX_DEADLINE_S = 3600.0
STOP_DEADLINE_S = 60.0
PROTOCOL_VERSION = "2025-11-25"


class CorpusServer:
    """One running `dir2mcp up`, with a session open; leaving the block stops it."""

    def __init__(self, directory: Path) -> None:
        self.started_at = time.perf_counter()
        self._events: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._ended = False
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MISTRAL_", "DIR2MCP_"))}
        command = [str(Path(sys.executable).parent / "dir2mcp"), "up", "--dir", str(directory), "--json"]
        self._process = subprocess.Popen(
            [*command, "--non-interactive"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=kept,
        )
        self._reader = threading.Thread(target=self._read_events, daemon=True)
        self._reader.start()
        try:
            connection = self.wait_for("connection", deadline_s=START_DEADLINE_S)
            self._client = _Client(connection["url"], Path(connection["token_file"]).read_text().strip())
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                print("the server did not stop when asked to")
        self._end()

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What the tool answers."""
        return self._client.call(f"dir2mcp.{tool}", arguments)

    def search(self, query: str, k: int = 10) -> list[dict[str, Any]]:
        """The hits for a query."""
        return self.call("search", {"query": query, "k": k})["hits"]

    def search_until(self, query: str, fits: Callable[[dict[str, Any]], bool], deadline_s: float) -> list[Any]:
        """Search again and again until a hit fits; the hits."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            hits = self.search(query)
            if any(map(fits, hits)):
                return hits
            time.sleep(0.005)
        raise TimeoutError(f"no such hit in {deadline_s:g} s")

    def wait_until_indexed(self) -> dict[str, Any]:
        """The counters once everything is indexed and embedded."""
        return self.wait_for("scan_progress", lambda data: not data["running"], deadline_s=INDEX_DEADLINE_S)

    def wait_for(
        self, event: str, fits: Callable[[dict[str, Any]], bool] = lambda data: True, *, deadline_s: float
    ) -> dict[str, Any]:
        """What the first such event tells."""
        end = time.monotonic() + deadline_s
        with self._changed:
            while True:
                for each in self._events:
                    if each["event"] == event and fits(each["data"]):
                        return each["data"]
                if self._ended:
                    raise EOFError(f"the server ended; its last words: {self._events[-2:]}")
                if not self._changed.wait(end - time.monotonic()):
                    raise TimeoutError(f"no {event} in {deadline_s:g} s")

    def memory_mb(self) -> dict[str, float]:
        """What the server holds, what of it nobody shares, and what its workers hold."""
        server = psutil.Process(self._process.pid)
        memory = server.memory_full_info()
        workers = sum(child.memory_info().rss for child in server.children(recursive=True))
        return {
            "server_rss_mb": round(memory.rss / 1e6, 1),
            "server_private_mb": round(memory.uss / 1e6, 1),
            "workers_rss_mb": round(workers / 1e6, 1),
        }

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._events.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait(STOP_DEADLINE_S)
        self._reader.join(STOP_DEADLINE_S)


class _Client:
    """One MCP session over one connection, so that the server is measured and not the client."""

    def __init__(self, url: str, token: str) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        self._connection = http.client.HTTPConnection(address.hostname, address.port or 80, timeout=60)
        self._path = address.path
        self._headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "authorization": f"Bearer {token}",
        }
        self._next_id = 0
        info = {"name": "benchmark", "version": "1"}
        params = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": info}
        answer, _ = self._post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self._headers |= {
            "mcp-session-id": answer.headers["mcp-session-id"],
            "mcp-protocol-version": PROTOCOL_VERSION,
        }
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._next_id += 1
        params = {"name": tool, "arguments": dict(arguments)}
        _, body = self._post({"jsonrpc": "2.0", "id": self._next_id, "method": "tools/call", "params": params})
        result = json.loads(body)["result"]
        if result.get("isError"):
            raise RuntimeError(f"{tool} failed: {result['content']}")
        return result["structuredContent"]

    def close(self) -> None:
        self._connection.close()

    def _post(self, message: Mapping[str, Any]) -> tuple[http.client.HTTPResponse, bytes]:
        try:
            return self._exchanged(message)
        except (BrokenPipeError, http.client.RemoteDisconnected):
            # A connection that nobody used while the index was built has been closed; the next request opens another.
            self._connection.close()
            return self._exchanged(message)

    def _exchanged(self, message: Mapping[str, Any]) -> tuple[http.client.HTTPResponse, bytes]:
        self._connection.request("POST", self._path, json.dumps(message), self._headers)
        answer = self._connection.getresponse()
        return answer, answer.read()
