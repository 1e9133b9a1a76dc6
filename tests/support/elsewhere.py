"""A server on another port of this machine: its pages are of another origin, and of the same site."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

PAGE = "<!doctype html><title>elsewhere</title><h1>Elsewhere</h1>"


class Elsewhere(ThreadingHTTPServer):
    """A server on another port of this machine. It notes what it is asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), _Page)

    @classmethod
    @contextmanager
    def running(cls) -> Generator[Self]:
        """The server, until the block ends."""
        with cls() as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield server
            finally:
                server.shutdown()
                thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Page(BaseHTTPRequestHandler):
    server: Elsewhere

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""
