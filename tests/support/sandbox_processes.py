"""Several servers on the same directories, each with several clients that change the same files at once."""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx

from support.server import ServerProcess

DEADLINE_S = 120.0
LINES_OF_PATCHES = 64
EXPECTED_REFUSALS = {"CONFLICT", "NOT_FOUND", "ALREADY_EXISTS", "RESOURCE_BUSY"}


class Refused(Exception):
    """A call that failed, with its code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Client:
    """A plain client over HTTP: cheap enough to have many."""

    def __init__(self, http: httpx.AsyncClient, session: dict[str, str]) -> None:
        self._http = http
        self._session = session

    @classmethod
    @asynccontextmanager
    async def connected(cls, server: ServerProcess) -> AsyncGenerator[Client]:
        headers = {"accept": "application/json, text/event-stream"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=DEADLINE_S) as http:
            answer = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
            session = {"mcp-session-id": answer.headers["mcp-session-id"]}
            await http.post("/mcp", headers=session, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
            yield cls(http, session)

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The structured answer, or `Refused`."""
        params = {"name": tool, "arguments": arguments}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = (await self._http.post("/mcp", headers=self._session, json=request)).json()
        result = answer["result"]
        if result.get("isError"):
            error = result["structuredContent"]["error"]
            raise Refused(error["code"], error["message"])
        return result["structuredContent"]

    async def move(self, source: tuple[str, str], dest: tuple[str, str]) -> dict[str, Any]:
        return await self.call(
            "move", source_root=source[0], source_path=source[1], dest_root=dest[0], dest_path=dest[1]
        )


@dataclass
class Acknowledged:
    """What the servers said has happened."""

    increments: int = 0
    lines: list[str] = field(default_factory=list)
    patches: Counter[int] = field(default_factory=Counter)
    created: dict[str, str] = field(default_factory=dict)
    in_moving_trees: list[str] = field(default_factory=list)
    moves: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)


class Campaign:
    """Clients at work on the roots `w` and `v`, and on `far`, which is on another file system if there is one."""

    def __init__(self, base: Path, far: Path, seed: int) -> None:
        self.roots = {"w": base / "w", "v": base / "v", "far": far}
        self.done = Acknowledged()
        self._seed = seed
        for name in ("w", "v"):
            (base / name).mkdir()
        (base / "w/counter").write_text("0")
        (base / "w/log").write_text("")
        (base / "w/patched").write_text("".join(f"{number} 0\n" for number in range(LINES_OF_PATCHES)))
        for number in range(8):
            (base / f"w/token-{number}").write_text(f"token {number}")
        for name in ("t", "u"):
            (base / "w" / name / "sub").mkdir(parents=True)

    async def work(self, client: Client, number: int, rounds: int) -> None:
        """One client: every kind of change, in an order of its own."""
        chance = random.Random(f"{self._seed}-{number}")
        jobs = [
            self._increment,
            self._append,
            self._patch,
            self._create,
            self._move_token,
            self._fill_tree,
            self._move_tree,
        ]
        for round_number in range(rounds):
            chance.shuffle(jobs)
            for job in jobs:
                await self._refusable(job, client, number, round_number, chance)

    async def _refusable(
        self,
        job: Callable[[Client, int, int, random.Random], Awaitable[None]],
        client: Client,
        number: int,
        round_number: int,
        chance: random.Random,
    ) -> None:
        try:
            await job(client, number, round_number, chance)
        except Refused as refused:
            if refused.code not in EXPECTED_REFUSALS:
                raise
            self.done.refusals[f"{job.__name__} {refused.code}"] += 1

    async def _increment(self, client: Client, _: int, __: int, ___: random.Random) -> None:
        for _attempt in range(5):
            content = (await client.call("read_file", root="w", path="counter"))["content"]
            seen = hashlib.sha256(content.encode()).hexdigest()
            try:
                await client.call("write_file", root="w", path="counter", content=str(int(content) + 1), if_match=seen)
            except Refused as refused:
                if refused.code != "CONFLICT":
                    raise
            else:
                self.done.increments += 1
                return

    async def _append(self, client: Client, number: int, round_number: int, _: random.Random) -> None:
        line = f"client {number} round {round_number} {'x' * 200}"
        await client.call("write_file", root="w", path="log", content=f"{line}\n", mode="append")
        self.done.lines.append(line)

    async def _patch(self, client: Client, number: int, _: int, __: random.Random) -> None:
        now, at = self.done.patches[number], number + 1
        diff = f"--- a\n+++ b\n@@ -{at} +{at} @@\n-{number} {now}\n+{number} {now + 1}\n"
        await client.call("patch_file", root="w", path="patched", patch=diff)
        self.done.patches[number] += 1

    async def _create(self, client: Client, number: int, round_number: int, _: random.Random) -> None:
        name = f"jobs/{round_number}"
        await client.call("write_file", root="w", path=name, content=f"by {number}", mode="create_only")
        assert name not in self.done.created, "created twice"
        self.done.created[name] = f"by {number}"

    async def _move_token(self, client: Client, _: int, __: int, chance: random.Random) -> None:
        token = f"token-{chance.randrange(8)}"
        source, dest = chance.sample(["w", "v", "far"], 2)
        await client.move((source, token), (dest, token))
        self.done.moves["file"] += 1

    async def _fill_tree(self, client: Client, number: int, round_number: int, chance: random.Random) -> None:
        tree, root = chance.choice([("t", chance.choice("wv")), ("u", chance.choice(["w", "far"]))])
        name = f"made-{number}-{round_number}"
        await client.call("write_file", root=root, path=f"{tree}/sub/{name}", content=name)
        self.done.in_moving_trees.append(name)

    async def _move_tree(self, client: Client, number: int, _: int, chance: random.Random) -> None:
        if number % 4:
            return
        tree, roots = chance.choice([("t", ["w", "v"]), ("u", ["w", "far"])])
        source, dest = chance.sample(roots, 2)
        answer = await client.move((source, tree), (dest, tree))
        self.done.moves["tree" if answer.get("complete", True) else "tree, with entries that remain"] += 1

    def verify(self, outsiders: list[str]) -> None:
        """Everything acknowledged is there, once, whole."""
        w = self.roots["w"]
        assert int((w / "counter").read_text()) == self.done.increments
        lines = (w / "log").read_text().splitlines()
        assert Counter(lines) == Counter([*self.done.lines, *outsiders])
        patched = dict(line.split() for line in (w / "patched").read_text().splitlines())
        assert patched == {str(number): str(self.done.patches[number]) for number in range(LINES_OF_PATCHES)}
        assert {f"jobs/{path.name}": path.read_text() for path in (w / "jobs").iterdir()} == self.done.created
        found = [path for root in self.roots.values() for path in root.rglob("*") if path.is_file()]
        tokens = Counter(path.name for path in found if path.name.startswith("token-"))
        assert tokens == dict.fromkeys((f"token-{number}" for number in range(8)), 1)
        made = Counter(path.name for path in found if path.name.startswith("made-"))
        missing = set(self.done.in_moving_trees) - set(made)
        assert not missing, f"{len(missing)} acknowledged files are gone"
        assert all(path.read_text() == path.name for path in found if path.name.startswith("made-"))
        assert not [path for path in found if path.name.startswith(".armarium-")]

    def told(self) -> str:
        """Counts, for whoever runs it long."""
        done = self.done
        return (
            f"{done.increments} increments, {len(done.lines)} appends, {done.patches.total()} patches, "
            f"{len(done.created)} creations, {len(done.in_moving_trees)} files in moving trees, "
            f"moves {dict(done.moves)}, refusals {dict(done.refusals)}"
        )


@contextmanager
def writing_beside(log: Path) -> Generator[list[str]]:
    """A program of somebody else that has the log open and writes lines into it, as loggers do."""
    lines: list[str] = []
    stop = threading.Event()

    def write() -> None:
        fd = os.open(log, os.O_WRONLY | os.O_APPEND)
        try:
            while not stop.wait(0.01):
                lines.append(f"outsider {len(lines)}")
                os.write(fd, f"{lines[-1]}\n".encode())
        finally:
            os.close(fd)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield lines
    finally:
        stop.set()
        thread.join()


@contextmanager
def far_directory(base: Path) -> Generator[Path]:
    """A directory on another file system, where the machine has one; else one beside the others."""
    shared = "/dev/shm"
    usable = os.path.isdir(shared) and os.access(shared, os.W_OK)
    with tempfile.TemporaryDirectory(prefix="armarium-test-", dir=shared if usable else base) as directory:
        yield Path(directory)


def config_of(roots: dict[str, Path]) -> dict[str, Any]:
    listed = [{"name": name, "path": str(path), "allowed_tools": ["*"]} for name, path in roots.items()]
    return {"host": "127.0.0.1", "roots": listed}


async def run_campaign(base: Path, far: Path, seed: int, *, processes: int, clients: int, rounds: int) -> Campaign:
    """All clients of all processes at once."""
    campaign = Campaign(base, far, seed)
    servers: list[ServerProcess] = []
    try:
        for number in range(processes):
            (base / f"server-{number}").mkdir()
            servers.append(ServerProcess.mcp_filesystem(base / f"server-{number}", config_of(campaign.roots)))
        with writing_beside(base / "w/log") as outsiders:

            async def take_part(server: ServerProcess, number: int) -> None:
                async with Client.connected(server) as client:
                    await campaign.work(client, number, rounds)

            async with anyio.create_task_group() as tasks:
                for number in range(processes * clients):
                    tasks.start_soon(take_part, servers[number % processes], number)
        campaign.verify(outsiders)
        for server in servers:
            server.stop()
    finally:
        for server in servers:
            server.kill()
    return campaign
