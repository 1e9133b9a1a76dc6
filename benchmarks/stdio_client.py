"""A bare MCP client over stdio, so that a benchmark measures the server and not the client."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class StdioServer:
    """A server process and the requests sent to it, one after the other."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, **(env or {})},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in = self._process.stdin
        self._out = self._process.stdout.fileno()
        self._rest = b""
        self._next_id = 0
        client = {"name": "benchmark", "version": "1"}
        self.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, arguments: Mapping[str, Any]) -> bytes:
        """Call a tool; the raw answer line."""
        return self.request("tools/call", {"name": tool, "arguments": dict(arguments)})

    def request(self, method: str, params: Mapping[str, Any]) -> bytes:
        self._next_id += 1
        self._write({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": dict(params)})
        wanted = b'"id":%d' % self._next_id
        while True:
            line = self._read_line()
            if wanted in line[:80] or wanted in line[-40:]:
                return line

    def checked(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool once and make sure that it worked."""
        result = json.loads(self.call(tool, arguments))["result"]
        assert not result.get("isError"), result
        return result

    def cpu_s(self) -> float:
        """CPU seconds the server has used, threads included."""
        with open(f"/proc/{self._process.pid}/stat") as file:
            fields = file.read().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND

    def close(self) -> None:
        self._in.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write(self, message: Mapping[str, Any]) -> None:
        self._in.write(json.dumps(message).encode() + b"\n")

    def _read_line(self) -> bytes:
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            part = os.read(self._out, 1 << 20)
            if not part:
                raise EOFError("the server went away")
            parts.append(part)
        line, _, self._rest = b"".join(parts).partition(b"\n")
        return line
