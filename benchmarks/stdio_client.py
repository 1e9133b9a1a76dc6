"""A bare MCP client over stdio, so that a benchmark measures the server and not the client."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

_NEWLINE = 10
_LONGEST_LINE = 256 * 1024 * 1024
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
        self._buffer = bytearray(_LONGEST_LINE)
        self._next_id = 0
        client = {"name": "benchmark", "version": "1"}
        self.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, arguments: Mapping[str, Any]) -> int:
        """Call a tool and wait for the whole answer; how many bytes it has."""
        return self.request("tools/call", {"name": tool, "arguments": dict(arguments)})

    def request(self, method: str, params: Mapping[str, Any]) -> int:
        """Send a request; its answer is then in the buffer."""
        self._next_id += 1
        self._write({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": dict(params)})
        wanted = b'"id":%d' % self._next_id
        while True:
            length = self._read_line()
            if wanted in self._buffer[:80] or wanted in self._buffer[length - 40 : length]:
                return length

    def checked(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool once and make sure that it worked."""
        result = json.loads(self._buffer[: self.call(tool, arguments)])["result"]
        assert not result.get("isError"), result
        return result

    @property
    def pid(self) -> int:
        return self._process.pid

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

    def _read_line(self) -> int:
        """Read one line into the buffer. Allocating megabytes for every answer would cost as much as making it."""
        length = 0
        with memoryview(self._buffer) as view:
            while not (length and self._buffer[length - 1] == _NEWLINE):
                count = os.readv(self._out, [view[length:]])
                if not count:
                    raise EOFError("the server went away")
                length += count
        return length
