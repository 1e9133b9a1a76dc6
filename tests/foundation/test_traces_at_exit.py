"""The last traces are delivered at exit, or dropped if the collector does not respond."""

from __future__ import annotations

import http.server
import os
import socket
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from support.server import ServerProcess, installed_command

PROMISED_S = 40.0
"""Generous for a busy machine, and less than the exporter takes when nobody stops it."""
GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
HEADERS = {"accept": "application/json, text/event-stream"}


@contextmanager
def silent_collector() -> Generator[str]:
    """Connections are accepted, by the kernel, and nothing ever answers on them."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1/traces"


@contextmanager
def collector(redirect_to: str | None = None) -> Generator[tuple[str, list[bytes]]]:
    """Takes what it is sent, or asks for it to be sent elsewhere."""
    bodies: list[bytes] = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(307 if redirect_to else 200)
            if redirect_to:
                self.send_header("location", redirect_to)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as receiving:
        thread = threading.Thread(target=receiving.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{receiving.server_port}/v1/traces", bodies
        finally:
            receiving.shutdown()
            thread.join()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A server anyone on this machine may call, whose state belongs to the test."""
    (tmp_path / "served").mkdir()
    root = {"name": "workspace", "path": str(tmp_path / "served"), "allowed_tools": ["*"]}
    file = tmp_path / "armarium.yaml"
    settings = {
        "state_dir": str(tmp_path / "state"),
        "server": {"port": 0},
        "security": {"auth": "none"},
        "sandbox": {"roots": [root]},
    }
    file.write_text(yaml.safe_dump(settings))
    return file


def serving(config: Path, endpoint: str, **environ: str) -> ServerProcess:
    command = [installed_command("armarium"), "serve", "--config", str(config)]
    return ServerProcess(command, environ={"ARMARIUM_TELEMETRY__OTLP_ENDPOINT": endpoint, **environ})


@pytest.mark.alone
def test_a_collector_that_never_answers_does_not_hold_the_server_up(config: Path) -> None:
    with silent_collector() as endpoint, serving(config, endpoint) as server:
        for _ in range(20):
            assert httpx.post(f"{server.url}/mcp", json=GREETING, headers=HEADERS).status_code == 200
        since = time.monotonic()
        assert server.stop() == 0
        took_s = time.monotonic() - since
    assert took_s < PROMISED_S
    assert server.other_output == []


@pytest.mark.alone
def test_a_collector_that_never_answers_does_not_hold_a_client_up_that_leaves(config: Path) -> None:
    with silent_collector() as endpoint:
        since = time.monotonic()
        ended = subprocess.run(
            [installed_command("armarium"), "stdio", "--config", str(config)],
            env={**os.environ, "ARMARIUM_TELEMETRY__OTLP_ENDPOINT": endpoint},
            input=httpx.Request("POST", "http://x", json=GREETING).content + b"\n",
            capture_output=True,
            timeout=60,
            check=False,
        )
        took_s = time.monotonic() - since
    assert (ended.returncode, ended.stdout.count(b'"result"')) == (0, 1)
    assert took_s < PROMISED_S, "the start is in it as well"


def test_the_last_traces_of_a_server_that_is_stopped_reach_the_collector(config: Path) -> None:
    with collector() as (endpoint, bodies), serving(config, endpoint) as server:
        assert httpx.post(f"{server.url}/mcp", json=GREETING, headers=HEADERS).status_code == 200
        assert server.stop() == 0
        assert any(b"initialize" in body for body in bodies)


def test_traces_for_this_machine_neither_take_a_proxy_nor_follow_a_redirect(config: Path) -> None:
    """`network: off` permits a collector here, so nothing may lead elsewhere."""
    with collector() as (elsewhere, received), collector(elsewhere) as (endpoint, asked):
        proxies = {"HTTP_PROXY": elsewhere.removesuffix("/v1/traces"), "NO_PROXY": ""}
        with serving(config, endpoint, ARMARIUM_NETWORK="off", **proxies) as server:
            assert httpx.post(f"{server.url}/mcp", json=GREETING, headers=HEADERS, trust_env=False).status_code == 200
            assert server.stop() == 0
        assert asked
        assert received == []
