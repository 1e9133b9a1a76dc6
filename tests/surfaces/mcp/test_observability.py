"""Log lines, audit records, metrics and traces of a running server, and the secrets that are in none of them."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from armarium.foundation.audit import AuditFilter, read_records
from support.mcp_messages import calling, gauge, http_client, official_client, open_session, server_command, serving
from support.mcp_test_server import ALICE_KEY, CRASH_SECRET, build
from support.server import ServerProcess

CONTENT_CANARY = "canary-in-the-middle-of-a-file"


async def use(url: str) -> None:
    """A bit of everything: calls that work, fail and crash, with and without a session, and a wrong key."""
    for mode in ("legacy", "2026-07-28"):
        async with official_client(f"{url}/mcp", mode=mode) as client:
            await client.call_tool("whoami", {})
            await client.call_tool("keep", {"path": "a.txt", "content": "x" * 600 + CONTENT_CANARY})
            await client.call_tool("crash", {})
            await client.call_tool("echo", {})
    async with http_client(url, f"{ALICE_KEY}-but-wrong") as stranger:
        assert (await stranger.get("/metrics")).status_code == 401


async def test_a_key_is_written_nowhere_and_neither_is_content(tmp_path: Path) -> None:
    trail = tmp_path / "audit.sqlite"
    with ServerProcess(server_command("http", "--audit", str(trail))) as server:
        await use(server.url)
        async with http_client(server.url) as client:
            exposed = (await client.get("/metrics")).text
        server.stop()
        said = server.said()
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for canary in (ALICE_KEY, CONTENT_CANARY):
        assert canary not in said
        assert canary not in exposed
        assert canary.encode() not in stored
    assert CRASH_SECRET in said, "the log does say why something crashed"
    assert CRASH_SECRET.encode() not in stored
    records = [record for _, record in read_records(trail, AuditFilter(), last=100)]
    assert [record.tool for record in records] == ["whoami", "keep", "crash", "echo"] * 2
    assert {record.principal for record in records} == {"alice"}
    assert [record.session is None for record in records] == [False] * 4 + [True] * 4


async def test_every_line_of_the_log_is_json_and_every_call_has_its_own(tmp_path: Path) -> None:
    with ServerProcess(server_command("http")) as server:
        await use(server.url)
        server.stop()
        calls = [line for line in server.log if line["msg"] == "call"]
    assert server.other_output == []
    assert [line["tool"] for line in calls] == ["whoami", "keep", "crash", "echo"] * 2
    assert len({line["call_id"] for line in calls}) == 8
    assert all({"time", "level", "msg"} <= set(line) for line in server.log)
    crashed = [line for line in server.log if line["level"] == "ERROR"]
    assert [line["tool"] for line in crashed] == ["crash"] * 2
    assert all(len(line["incident"]) == 32 and "RuntimeError" in line["exception"] for line in crashed)


async def test_metrics_tell_calls_errors_durations_sessions_and_what_is_in_flight() -> None:
    rig = build()
    async with serving(rig.app) as url, http_client(url) as client, anyio.create_task_group() as tasks:
        session = await open_session(client)
        await open_session(client, "/mcp/other")

        async def wait() -> None:
            await client.post("/mcp", json=calling("wait_for", moment="noon"), headers=session)

        tasks.start_soon(wait)
        await rig.stage.happens("noon awaited")
        await client.post("/mcp", json=calling("echo", text="hi"), headers=session)
        await client.post("/mcp", json=calling("echo"), headers=session)
        answer = await client.get("/metrics")
        rig.stage["noon"].set()
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    exposed = answer.text
    assert gauge(exposed, "armarium_sessions") == 2
    assert gauge(exposed, "armarium_calls_in_flight") == 1
    lines = exposed.splitlines()
    assert 'armarium_calls_total{capability="stage",outcome="success",tool="echo"} 1.0' in lines
    assert 'armarium_errors_total{capability="stage",code="INVALID_ARGUMENT"} 1.0' in lines
    assert 'armarium_call_duration_seconds_count{capability="stage",tool="echo"} 2.0' in lines
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} >= {
        "armarium_calls_total",
        "armarium_errors_total",
        "armarium_call_duration_seconds",
        "armarium_sessions",
        "armarium_calls_in_flight",
        "armarium_requests_refused_total",
    }


@contextmanager
def trace_collector() -> Generator[tuple[str, list[Span]]]:
    """An OTLP/HTTP receiver of our own; yields its address and the spans it was sent."""
    spans: list[Span] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    spans.extend(scope.spans)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{collector.server_port}/v1/traces", spans
        finally:
            collector.shutdown()
            thread.join()


async def test_traces_are_exported_when_asked_for_and_keep_the_same_secrets() -> None:
    with trace_collector() as (endpoint, spans):
        with ServerProcess(server_command("http", "--otlp", endpoint)) as server:
            await use(server.url)
        called = [span for span in spans if span.name.startswith("tools/call")]
    assert sorted(span.name for span in called) == sorted(
        f"tools/call {tool}" for tool in ("whoami", "keep", "crash", "echo") for _ in range(2)
    )
    crash = next(span for span in called if span.name == "tools/call crash")
    assert {attribute.key: attribute.value.string_value for attribute in crash.attributes}["error.type"] == "tool_error"
    for canary in (ALICE_KEY, CONTENT_CANARY, CRASH_SECRET):
        assert canary not in "".join(str(span) for span in spans)
