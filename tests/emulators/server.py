"""The HTTP server of all emulators: records and validates requests, and applies faults."""

from __future__ import annotations

import json
import socket
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import orjson

from emulators.faults import (
    Fault,
    Malformed,
    Overlong,
    RateLimited,
    Redirected,
    Refused,
    ServerError,
    Silent,
    Stalled,
    Together,
    Truncated,
    Unusable,
)
from emulators.schemas import Check

Json = dict[str, Any]

_LONGEST_WAIT_S = 30.0
_PROXY_PAGE = "<html><body>Bad gateway</body></html>"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A received request."""

    path: str
    headers: dict[str, str]
    """With lower-case names."""
    body: Json


class VendorRefusal(Exception):
    """The provider rejects the request."""

    def __init__(self, status: int, body: Json) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class Whole:
    """A complete response and its schema."""

    body: Json
    check: Check


@dataclass(frozen=True, slots=True)
class Stream:
    """A streamed response and the schema of its events."""

    events: Iterable[Json]
    check: Check


class Emulator(ABC):
    """A provider on a free local port. Leaving the block fails if a message did not match the schema."""

    version: str
    """The first segment of all paths."""

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.faults: deque[Fault] = deque()
        self.requests: list[Recorded] = []
        self.complaints: list[str] = []
        self.most_in_flight = 0
        self.silent = threading.Event()
        """Set when a client waits for a response that never comes."""
        self.left = threading.Event()
        """Set when a client disconnected before its response."""
        self._in_flight = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.emulator = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="emulator", daemon=True)

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._server.server_port}/{self.version}"

    def bodies(self, path: str) -> list[Json]:
        """The bodies sent to a path, such as `/embeddings`."""
        return [request.body for request in self.requests if request.path == f"/{self.version}{path}"]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        self._thread.join()
        if failure is None:
            assert not self.complaints, self.complaints

    @abstractmethod
    def respond(self, path: str, body: Json) -> Whole | Stream:
        """Answer a request to a path, such as `/embeddings`, or raise `VendorRefusal`."""

    @abstractmethod
    def error_body(self, status: int, message: str, kind: str) -> Json:
        """An error as the vendor writes it."""

    def rate_limit_body(self, shape: str) -> Json:
        """The body of a 429 in one of its shapes."""
        if shape == "message":
            return {"message": "Requests rate limit exceeded"}
        if shape == "detail":
            return {"detail": "Rate limit exceeded"}
        return self.error_body(429, "Rate limit exceeded", "rate_limited")

    def admit(self, headers: dict[str, str]) -> None:
        """Raise `VendorRefusal` unless the caller has the key."""
        given = headers.get("authorization", "")
        if self.key is not None and given != f"Bearer {self.key}":
            # Vendors do repeat the key.
            raise VendorRefusal(401, self.error_body(401, f"Incorrect API key provided: {given}", "invalid_api_key"))

    def complain_about_request(self, complaint: str | None) -> None:
        """Refuse a request that does not fit the schema, and remember it."""
        if complaint is not None:
            self.complaints.append(f"request: {complaint}")
            raise VendorRefusal(422, {"detail": [{"loc": ["body"], "msg": complaint, "type": "value_error"}]})

    def take_fault(self, path: str) -> Fault | None:
        """The fault that befalls a request to this path."""
        with self._lock:
            for fault in self.faults:
                if path.endswith(fault.on):
                    self.faults.remove(fault)
                    return fault
        return None

    @contextmanager
    def handling(self, request: Recorded) -> Generator[None]:
        """Count the request while it is answered."""
        with self._lock:
            self.requests.append(request)
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1

    @property
    def closing(self) -> bool:
        """Whether the emulator is being left."""
        return self._closing.is_set()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for them, and no socket is left open
    request_queue_size = 64
    emulator: Emulator

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news; anything else is a fault of the emulator."""
        failure = sys.exc_info()[1]
        if not isinstance(failure, ConnectionError):
            self.emulator.complaints.append(f"the emulator failed: {failure!r}")

    def hang_up(self) -> None:
        """End the connections that clients keep open."""
        for connection in [*self._connections]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Disable logging."""

    def do_POST(self) -> None:
        """Answer one request."""
        emulator = self.server.emulator
        length = int(self.headers.get("content-length") or 0)
        raw = self.rfile.read(length)
        if len(raw) < length:
            # The client disconnected before the end of its request.
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = json.loads(raw)
        fault = emulator.take_fault(self.path)
        with emulator.handling(Recorded(self.path, headers, body)), suppress(BrokenPipeError, ConnectionResetError):
            if not self._apply(fault):
                try:
                    emulator.admit(headers)
                    answer = emulator.respond(self.path.removeprefix(f"/{emulator.version}"), body)
                except VendorRefusal as refusal:
                    self._send(refusal.status, refusal.body)
                else:
                    self._answer(answer, fault)

    def _apply(self, fault: Fault | None) -> bool:
        """Apply a fault that replaces the response. Returns whether there was one."""
        emulator = self.server.emulator
        match fault:
            case Refused(status=status, body=body, headers=headers):
                refusal = emulator.error_body(status, "Refused", "invalid_request_error")
                self._send(status, refusal if body is None else body, dict(headers))
            case RateLimited(retry_after=retry_after, shape=shape):
                self._send(429, emulator.rate_limit_body(shape), _retry_after(retry_after))
            case ServerError(status=status, retry_after=retry_after):
                self._send(status, _PROXY_PAGE, _retry_after(retry_after))
            case Redirected(location=location):
                self._send(307, "", {"location": location})
            case Malformed(body=body):
                self._send(200, body)
            case Overlong(bytes=count):
                self._send(200, b'{"padding": "' + b"x" * count + b'"}')
            case Silent():
                self._wait_until_left()
            case Together(barrier=barrier):
                barrier.wait(_LONGEST_WAIT_S)
                return False
            case _:
                return False
        return True

    def _answer(self, answer: Whole | Stream, fault: Fault | None) -> None:
        if isinstance(answer, Stream):
            self._stream(answer, fault)
            return
        body: object = answer.body
        if isinstance(fault, Unusable):
            body = fault.change(answer.body)
        else:
            self._complain_about_answer(answer.check(answer.body))
        content = orjson.dumps(body)
        if isinstance(fault, Truncated):
            self._head(200, "application/json", {"content-length": str(len(content))})
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
        else:
            self._send(200, content)

    def _stream(self, answer: Stream, fault: Fault | None) -> None:
        self._head(200, "text/event-stream; charset=utf-8", {"transfer-encoding": "chunked"})
        for sent, event in enumerate(answer.events):
            match fault:
                case Truncated(after_events=count, cleanly=cleanly) if sent == count:
                    if cleanly:
                        self.wfile.write(b"0\r\n\r\n")
                    self.close_connection = True
                    return
                case Stalled(after_events=count) if sent == count:
                    self._wait_until_left()
                    return
                case Unusable(change=change):
                    self._chunk(b"data: " + orjson.dumps(change(event)) + b"\n\n")
                case _:
                    self._complain_about_answer(answer.check(event))
                    self._chunk(b"data: " + orjson.dumps(event) + b"\n\n")
        self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _complain_about_answer(self, complaint: str | None) -> None:
        if complaint is not None:
            self.server.emulator.complaints.append(f"answer: {complaint}")

    def _wait_until_left(self) -> None:
        self.connection.settimeout(_LONGEST_WAIT_S)
        self.server.emulator.silent.set()
        with suppress(OSError):
            if self.connection.recv(1) == b"" and not self.server.emulator.closing:
                self.server.emulator.left.set()
        self.close_connection = True

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")

    def _send(self, status: int, body: Json | bytes | str, headers: dict[str, str] | None = None) -> None:
        if isinstance(body, dict):
            kind, content = "application/json", orjson.dumps(body)
        elif isinstance(body, str):
            kind, content = "text/html", body.encode()
        else:
            kind, content = "application/json", body
        self._head(status, kind, {**(headers or {}), "content-length": str(len(content))})
        self.wfile.write(content)

    def _head(self, status: int, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, **headers}.items():
            self.send_header(name, value)
        self.end_headers()


def _retry_after(value: float | str | None) -> dict[str, str]:
    return {} if value is None else {"retry-after": str(value)}
