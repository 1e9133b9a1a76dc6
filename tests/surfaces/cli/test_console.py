"""`armarium console` and the link of `armarium up`: printed at a terminal only, good for one log-in as the owner."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pexpect
import pytest

from support.command_line import CommandLine, InThisProcess
from support.server import installed_command

LINK = re.compile(rb"(http://127\.0\.0\.1:\d+)/console#in=([\w-]{27})\s")


@contextmanager
def at_terminal(armarium: CommandLine, *arguments: str) -> Generator[pexpect.spawn]:
    program = installed_command("armarium")
    with pexpect.spawn(program, [*arguments], cwd=armarium.cwd, env=armarium.environ, timeout=60) as terminal:
        yield terminal


def log_in(address: bytes, code: bytes) -> httpx.Response:
    url = f"{address.decode()}/api/session"
    return httpx.post(url, json={"code": code.decode()}, timeout=60, trust_env=False)


def test_links_are_printed_at_a_terminal_and_log_in_the_owner_once(armarium: CommandLine) -> None:
    with at_terminal(armarium, "up", "--port", "0", "--no-index") as server:
        server.expect("Stop with Ctrl-C")
        shown = server.before
        with at_terminal(armarium, "console") as command:
            command.expect(LINK)
            address, code = command.match.groups()
        answer = log_in(address, code)
        assert answer.status_code == 201
        assert answer.json()["principal"]["is_owner"] is True
        assert log_in(address, code).status_code == 401
        if b"The console is not built" not in shown:
            of_up = LINK.search(shown)
            assert of_up is not None
            assert log_in(*of_up.groups()).status_code == 201
        server.kill(signal.SIGINT)
        server.expect(pexpect.EOF)


def test_elsewhere_only_the_address_is_printed(armarium: CommandLine, home: Path) -> None:
    with armarium.start("up", "--port", "0", "--no-index", "--json") as server:
        url: str = json.loads(server.stdout.next())["url"].removesuffix("/mcp")
        printed = armarium("console")
        assert printed.stdout == f"{url}/console\n"
        assert "at a terminal only" in printed.stderr
        assert armarium("console", "--json").json == {"url": f"{url}/console"}
        assert not list((home / "state" / "armarium").glob("console-links/*"))
        assert armarium("console", "--port", "1").code == 1
        server.interrupt()
    gone = armarium("console", "--json")
    assert gone.code == 1
    assert gone.json["error"]["code"] == "NO_CONSOLE"
    assert "armarium up" in gone.json["error"]["hint"]


def test_a_killed_server_is_not_taken_for_a_running_one(armarium: CommandLine, home: Path) -> None:
    with armarium.start("up", "--port", "0", "--no-index", "--json") as server:
        server.stdout.next()
        server.process.kill()
        server.process.wait(60)
    records = home / "state" / "armarium" / "servers"
    assert list(records.glob("*.json"))
    assert armarium("console").code == 1
    assert not list(records.glob("*.json"))


def test_the_browser_opens_the_link_through_a_file_that_only_the_user_can_read(
    armarium: CommandLine, quick: InThisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command line would show the link to every user of the machine."""
    opened: list[str] = []

    def open_page(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr("webbrowser.open", open_page)
    with armarium.start("up", "--port", "0", "--no-index", "--json") as server:
        server.stdout.next()
        outcome = quick("console", "--open")
        assert outcome.code == 0
        assert "#in=" not in outcome.stdout + outcome.stderr
        page = Path(opened[0].removeprefix("file://"))
        assert "#in=" not in opened[0]
        assert page.stat().st_mode & 0o777 == 0o600
        found = re.search(rb"url=(http://[\d.:]+)/console#in=([\w-]+)", page.read_bytes())
        assert found is not None
        assert log_in(*found.groups()).status_code == 201
        server.interrupt()


def test_a_server_can_do_without_the_console(armarium: CommandLine, home: Path) -> None:
    armarium.environ["ARMARIUM_CONSOLE__ENABLED"] = "false"
    with armarium.start("up", "--port", "0", "--no-index", "--json") as server:
        url: Any = json.loads(server.stdout.next())["url"].removesuffix("/mcp")
        assert httpx.get(f"{url}/console", timeout=60, trust_env=False).status_code == 404
        token = {"authorization": f"Bearer {(home / 'state/armarium/secret.token').read_text().strip()}"}
        assert httpx.get(f"{url}/api/session", headers=token, timeout=60, trust_env=False).status_code == 404
        assert armarium("console").code == 1
        server.interrupt()


def test_a_console_that_is_not_built_is_told_with_the_address(
    armarium: CommandLine, quick: InThisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("armarium.surfaces.cli.console.is_built", lambda: False)
    with armarium.start("up", "--port", "0", "--no-index", "--json") as server:
        server.stdout.next()
        assert "make console" in quick("console").stderr
        server.interrupt()
