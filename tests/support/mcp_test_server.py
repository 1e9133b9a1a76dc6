"""Two small capabilities for the surface's tests: tools that answer, wait, work, fail and misbehave on demand.

Run as a program it serves them over HTTP or stdio, so that signals, memory and standard output can be tested too.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired

import anyio
from typing_extensions import TypedDict

from armarium.capability import ServerIdentity
from armarium.foundation.audit import AuditLog
from armarium.foundation.concurrency.cancellation import Cancellation, Stopped
from armarium.foundation.errors import ArmariumError
from armarium.foundation.security.identity import Authenticator, Principal, key_hash
from armarium.foundation.settings.model import LimitSettings, SessionSettings
from armarium.foundation.sockets import listen
from armarium.foundation.telemetry import Metrics, export_traces, log_as_json
from armarium.foundation.tools import Args, Call, ToolSpec, local_tool
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import Gate
from armarium.surfaces.http.forwarded import IpNetwork
from armarium.surfaces.mcp.app import McpApp
from armarium.surfaces.mcp.http_server import serve_http
from armarium.surfaces.mcp.server import McpServer, mcp_server
from armarium.surfaces.mcp.sessions import Sessions
from armarium.surfaces.mcp.stdio import serve_stdio
from support.scripted_tool_provider import ScriptedToolProvider

_log = logging.getLogger("armarium.fixture")

ALICE_KEY = "alice-key-4f1c0d"
BOB_KEY = "bob-key-91ab77"
ALICE = Principal("alice", ("staff", "editors"), key_hash(ALICE_KEY))
BOB = Principal("bob", (), key_hash(BOB_KEY))
CRASH_SECRET = "hunter2-canary"
CRASH_PATH = "/srv/host/private.db"
_MOST_BEATS = 15_000
"""Half a minute: a test that forgot a worker must fail, not hang."""


class Denied(ArmariumError):
    """A denial as a capability would raise it."""

    code, security = "PATH_ESCAPES_ROOT", True


class Nothing(Args):
    """No argument at all."""


class EchoArgs(Args):
    """The text to echo."""

    text: str
    times: int = 1


class MomentArgs(Args):
    """A moment that another call, or the test, triggers."""

    moment: str
    deadline_s: float | None = None


class LingerArgs(Args):
    """How long to wait."""

    moment: str
    seconds: float


class KeepArgs(Args):
    """Some content."""

    root: str = "workspace"
    path: str
    content: str


class SizeArgs(Args):
    """A size."""

    size: int


class Echo(TypedDict):
    """The echo."""

    text: str


class Caller(TypedDict):
    """The caller as the tool sees it."""

    username: str
    groups: list[str]
    apikey_hash: str
    credential_sha256: NotRequired[str]


class Kept(TypedDict):
    """The size of the content."""

    size: int


class Stage:
    """Named events that tools wait for and tests observe."""

    def __init__(self) -> None:
        self._moments: defaultdict[str, anyio.Event] = defaultdict(anyio.Event)

    def __getitem__(self, moment: str) -> anyio.Event:
        return self._moments[moment]

    async def happens(self, moment: str) -> None:
        """Wait for the moment, with a deadline."""
        with anyio.fail_after(10):
            await self[moment].wait()


def stage_tools(stage: Stage) -> list[ToolSpec]:
    """The tools of the first capability."""
    threads = ThreadPoolExecutor(8, "fixture")

    async def echo(call: Call, args: EchoArgs) -> Echo:
        """Say it back."""
        return {"text": args.text * args.times}

    async def whoami(call: Call, args: Nothing) -> Caller:
        """Tell who calls."""
        caller: Caller = {
            "username": call.principal.username,
            "groups": list(call.principal.groups),
            "apikey_hash": call.principal.apikey_hash,
        }
        if call.credential is not None:
            caller["credential_sha256"] = hashlib.sha256(call.credential.encode()).hexdigest()
        return caller

    async def wait_for(call: Call, args: MomentArgs) -> Echo:
        """Wait until the moment comes."""
        stage[f"{args.moment} awaited"].set()
        try:
            await stage[args.moment].wait()
        except BaseException:
            stage[f"{args.moment} abandoned"].set()
            raise
        return {"text": args.moment}

    async def look_for(call: Call, args: MomentArgs) -> Echo:
        """Search until the moment comes."""
        return await wait_for(call, args)

    async def linger(call: Call, args: LingerArgs) -> Echo:
        """Stay for a while, whatever happens around."""
        stage[args.moment].set()
        await anyio.sleep(args.seconds)
        return {"text": "stayed"}

    async def reach(call: Call, args: MomentArgs) -> Echo:
        """Make the moment come."""
        stage[args.moment].set()
        return {"text": args.moment}

    async def work_until(call: Call, args: MomentArgs) -> Echo:
        """Work in a thread, telling progress, until the moment comes."""
        loop = asyncio.get_running_loop()
        wanted = threading.Event()

        def announce(what: str) -> None:
            loop.call_soon_threadsafe(stage[f"{args.moment} {what}"].set)

        def work(cancellation: Cancellation) -> int:
            done = 0
            announce("begun")
            try:
                while not wanted.wait(0.002):
                    done += 1
                    cancellation.checkpoint(done // 2)  # as real work does, it sometimes has nothing new to tell
                    assert done < _MOST_BEATS, "nobody stopped the work"
            except Stopped:
                announce("stopped")
                raise
            return done

        async def pass_on() -> None:
            await stage[args.moment].wait()
            wanted.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pass_on)
            done = await asyncio.wrap_future(threads.submit(work, call.cancellation))
        return {"text": f"{done} beats"}

    async def crash(call: Call, args: Nothing) -> Echo:
        """Fail in a way nobody planned for."""
        raise RuntimeError(f"password {CRASH_SECRET} refused by {CRASH_PATH}")

    async def time_out(call: Call, args: Nothing) -> Echo:
        """Fail as a network file system does."""
        raise TimeoutError(110, "Connection timed out", CRASH_PATH)

    async def deny(call: Call, args: KeepArgs) -> Echo:
        """Refuse for the sake of security."""
        private = {"resolved": f"{CRASH_PATH}\udce9"}  # a host path with a byte that is no UTF-8
        raise Denied("that is outside", hint="stay inside", private=private, asked=args.path)

    async def keep(call: Call, args: KeepArgs) -> Kept:
        """Take some content."""
        return {"size": len(args.content)}

    async def fill(call: Call, args: SizeArgs) -> Echo:
        """Answer at length."""
        return {"text": "x" * args.size}

    async def lie(call: Call, args: Nothing) -> Kept:
        """Answer against the own schema."""
        return {"size": "many"}  # type: ignore[typeddict-item]

    async def shout(call: Call, args: EchoArgs) -> Echo:
        """Write to standard output, as a careless library would."""
        print(args.text, flush=True)
        os.write(1, args.text.encode())
        return {"text": args.text}

    def own_deadline(arguments: Mapping[str, Any]) -> float | None:
        return arguments.get("deadline_s")

    return [
        local_tool("echo", echo, read_only=True),
        local_tool("whoami", whoami, read_only=True),
        local_tool("wait_for", wait_for, read_only=True, deadline_s=own_deadline),
        local_tool("look_for", look_for, read_only=True, is_search=True),
        local_tool("linger", linger, read_only=True),
        local_tool("reach", reach),
        local_tool("work_until", work_until, read_only=True, deadline_s=own_deadline),
        local_tool("crash", crash),
        local_tool("time_out", time_out),
        local_tool("deny", deny),
        local_tool("keep", keep, content_fields=frozenset({"content"})),
        local_tool("fill", fill, read_only=True),
        local_tool("lie", lie),
        local_tool("shout", shout),
    ]


def other_tools() -> list[ToolSpec]:
    """The tool of the second capability."""

    async def answer(call: Call, args: Nothing) -> Echo:
        """Give the answer."""
        return {"text": "42"}

    return [local_tool("answer", answer, read_only=True)]


@dataclass(frozen=True)
class Rig:
    """A server with the fixture capabilities, and its parts."""

    app: McpApp
    stage: Stage
    sessions: Sessions
    metrics: Metrics
    dispatcher: Dispatcher
    servers: Mapping[str, McpServer]
    gate: Gate


def build(
    *,
    authenticator: Authenticator | None = None,
    allowed_origins: tuple[str, ...] = (),
    allowed_hosts: tuple[str, ...] = (),
    trusted_proxies: tuple[IpNetwork, ...] = (),
    loopback_only: bool = True,
    max_body_bytes: int = 1024 * 1024,
    inactivity_timeout_s: float | None = 3600,
    max_lifetime_s: float | None = None,
    max_sessions: int = 10_000,
    max_sessions_per_caller: int | None = None,
    limits: LimitSettings | None = None,
    request_limits: LimitSettings | None = None,
    default_deadline_s: float | None = 60,
    audit: AuditLog | None = None,
    body_timeout_s: float = 30.0,
    keep_alive_s: float = 15.0,
    clock: Callable[[], float] = time.monotonic,
    traced: bool = False,
    tool_provider: ScriptedToolProvider | None = None,
) -> Rig:
    """Assemble a server with the fixture tools, as the assembly does."""
    stage, metrics = Stage(), Metrics()
    capabilities = {"stage": stage_tools(stage), "other": other_tools()}
    if tool_provider is not None:
        capabilities["remote"] = [tool_provider.stocking()]
    dispatcher = Dispatcher(
        [(name, tool) for name, tools in capabilities.items() for tool in tools],
        tool_providers=[("remote", tool_provider)] if tool_provider is not None else (),
        metrics=metrics,
        audit=audit,
        default_deadline_s=default_deadline_s,
        limits=limits,
        check_answers=True,
    )
    every_tool = [tool for tools in capabilities.values() for tool in tools]
    identity, tool_providers = ServerIdentity("armarium", "Try echo first."), dispatcher.tool_providers
    servers = {"/mcp": mcp_server(identity, dispatcher, every_tool, tool_providers=tool_providers, traced=traced)}
    for name, tools in capabilities.items():
        identity = ServerIdentity(f"armarium-{name}", f"Only {name}.")
        servers[f"/mcp/{name}"] = mcp_server(identity, dispatcher, tools, tool_providers=tool_providers.of(name))
    session_settings = SessionSettings(
        inactivity_timeout=inactivity_timeout_s,
        max_lifetime=max_lifetime_s,
        max_sessions=max_sessions,
        max_sessions_per_caller=max_sessions_per_caller or max_sessions,
    )
    sessions = Sessions(session_settings, metrics, clock)
    gate = Gate(
        authenticator or Authenticator((ALICE, BOB)),
        allowed_origins=allowed_origins,
        allowed_hosts=allowed_hosts,
        loopback_only=loopback_only,
        max_body_bytes=max_body_bytes,
        metrics=metrics,
        limits=request_limits,
        has_session=sessions.has,
        body_timeout_s=body_timeout_s,
    )
    app = McpApp(servers, gate, sessions, metrics, keep_alive_s=keep_alive_s, trusted_proxies=trusted_proxies)
    return Rig(app, stage, sessions, metrics, dispatcher, servers, gate)


def main() -> None:
    """Serve until told to stop; over HTTP the address is logged once the server answers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("surface", choices=["http", "stdio"])
    parser.add_argument("--audit", type=Path)
    parser.add_argument("--grace", type=float, default=4.0)
    parser.add_argument("--max-bytes", type=int, default=1024 * 1024)
    parser.add_argument("--inactivity", type=float, default=3600)
    parser.add_argument("--otlp")
    parser.add_argument("--tool-provider", action="store_true")
    options = parser.parse_args()
    log_as_json("info")
    send_last_traces = export_traces(options.otlp, "armarium-fixture") if options.otlp else None
    audit = AuditLog(options.audit) if options.audit else None

    async def serve() -> None:
        rig = build(
            audit=audit,
            max_body_bytes=options.max_bytes,
            inactivity_timeout_s=options.inactivity,
            traced=options.otlp is not None,
            tool_provider=ScriptedToolProvider() if options.tool_provider else None,
        )
        if options.surface == "stdio":
            await serve_stdio(rig.servers["/mcp"], max_message_bytes=options.max_bytes)
            return
        listening = listen("127.0.0.1", 0)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def announce() -> None:
            _log.info("listening", extra={"address": address})

        await serve_http(rig.app, listening, grace_s=options.grace, on_ready=announce)
        _log.info("stopped")

    try:
        anyio.run(serve, backend_options={"use_uvloop": True})
    finally:
        if send_last_traces is not None:
            send_last_traces()
        if audit is not None:
            audit.close()


if __name__ == "__main__":
    main()
