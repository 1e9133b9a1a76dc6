"""Tickets over HTTP: addresses of files for elements of a page, which have the cookie of a session and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx
import pytest

from armarium.foundation.errors import ArmariumError
from armarium.foundation.security.identity import ANYONE, LOCAL, Principal
from armarium.foundation.tools import Call
from armarium.surfaces.web.tickets import Tickets
from support.files_server import KEYS, ServedFiles, code_of, served_files
from support.manual_clock import ManualClock
from support.server import ServerProcess, installed_command, write_config

TICKETS = "/api/raw/tickets"
CONTENT = b"\x89PNG of a harbour"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFiles]:
    roots = [{"name": "staffed", "allowed_tools": ["*"], "groups": ["staff"]}]
    with served_files(tmp_path_factory.mktemp("served"), roots) as files:
        (files.root() / "a b.png").write_bytes(CONTENT)
        (files.root() / "other.png").write_bytes(b"other")
        (files.root() / ".env").write_text("TOKEN=1")
        yield files


@dataclass(frozen=True)
class Page:
    """A page of the console in a browser: its requests have cookie and proof, those of its elements the cookie only."""

    http: httpx.Client
    proof: str

    def ticket(self, ref: str) -> httpx.Response:
        return self.http.post(TICKETS, json={"ref": ref}, headers={"x-armarium-proof": self.proof})

    def element(self, path: str, **headers: str) -> httpx.Response:
        return self.http.get(path, headers={"sec-fetch-site": "same-origin"} | headers)


@contextmanager
def page_of(served: ServedFiles, name: str = "ann") -> Iterator[Page]:
    with httpx.Client(base_url=served.process.url, timeout=30) as http:
        answer = http.post("/api/session", json={"key": KEYS[name]})
        assert answer.status_code == 201, answer.text
        yield Page(http, answer.json()["proof"])


@pytest.fixture
def page(served: ServedFiles) -> Iterator[Page]:
    with page_of(served) as opened:
        yield opened


def test_an_element_shows_the_file_of_its_ticket(page: Page) -> None:
    made = page.ticket("root://work/a b.png")
    assert made.status_code == 201
    path = made.json()["path"]
    assert path.endswith("/a%20b.png")
    shown = page.element(path)
    assert (shown.status_code, shown.content, shown.headers["content-type"]) == (200, CONTENT, "image/png")
    part = page.element(path, range="bytes=1-3")
    assert (part.status_code, part.content) == (206, b"PNG")
    assert page.http.head(path).headers["content-length"] == str(len(CONTENT))


def test_a_ticket_is_of_no_use_without_the_session_that_made_it(served: ServedFiles, page: Page) -> None:
    path = page.ticket("root://work/a b.png").json()["path"]
    assert httpx.get(served.process.url + path).status_code == 401
    with served.http() as with_key:
        assert (with_key.get(path).status_code, code_of(with_key.get(path))) == (410, "TICKET_EXPIRED")
    with page_of(served, "ben") as other, page_of(served, "ann") as same_caller:
        assert other.element(path).status_code == 410
        assert same_caller.element(path).status_code == 410
    assert page.element(path).status_code == 200
    assert page.http.delete("/api/session", headers={"x-armarium-proof": page.proof}).status_code == 200
    assert page.element(path).status_code == 401


@pytest.mark.parametrize(
    "foreign",
    [{"sec-fetch-site": "same-site"}, {"sec-fetch-site": "cross-site"}, {"origin": "http://127.0.0.1:1"}],
    ids=["another port", "another site", "another origin"],
)
def test_a_page_of_another_origin_cannot_use_a_ticket(page: Page, foreign: dict[str, str]) -> None:
    path = page.ticket("root://work/a b.png").json()["path"]
    assert page.element(path, **foreign).status_code == 403


def test_the_cookie_alone_gets_neither_a_file_nor_a_ticket(page: Page) -> None:
    assert page.element("/api/raw?ref=root://work/other.png").status_code == 401
    assert page.http.post(TICKETS, json={"ref": "root://work/other.png"}).status_code == 401


def test_a_ticket_is_for_its_file_only(page: Page) -> None:
    path = page.ticket("root://work/a b.png").json()["path"]
    assert page.element(f"{path}?ref=root://work/other.png").content == CONTENT
    secret = path.split("/")[3]
    assert page.element(f"/api/raw/{secret}/other.png").content == CONTENT
    assert page.element(f"/api/raw/{secret[:-1]}/other.png").status_code == 410
    assert page.http.put(path, content=b"x").status_code == 405


def test_who_may_not_read_a_file_does_not_by_a_ticket(served: ServedFiles, page: Page) -> None:
    (served.root("staffed") / "a.png").write_bytes(CONTENT)
    with page_of(served, "ben") as ben:
        path = ben.ticket("root://staffed/a.png").json()["path"]
        assert (ben.element(path).status_code, code_of(ben.element(path))) == (404, "UNKNOWN_ROOT")
    hidden = page.element(page.ticket("root://work/.env").json()["path"])
    assert (hidden.status_code, code_of(hidden)) == (403, "CREDENTIALS_HIDDEN")


def test_a_ticket_needs_a_session_and_a_reference(served: ServedFiles, page: Page) -> None:
    with served.http() as with_key:
        refused = with_key.post(TICKETS, json={"ref": "root://work/a b.png"})
        assert (refused.status_code, code_of(refused)) == (403, "NOT_PERMITTED")
    assert page.ticket("/etc/passwd").status_code == 400


def test_without_keys_a_page_needs_no_session(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(CONTENT)
    settings = {
        "state_dir": str(tmp_path / "state"),
        "server": {"port": 0},
        "security": {"auth": "none"},
        "sandbox": {"roots": [{"name": "work", "path": str(tmp_path), "allowed_tools": ["*"]}]},
    }
    command = [installed_command("armarium"), "serve", "--config", str(write_config(tmp_path, settings))]
    with ServerProcess(command) as process, httpx.Client(base_url=process.url) as http:
        path = http.post(TICKETS, json={"ref": "root://work/a.png"}).json()["path"]
        assert http.get(path).content == CONTENT


def made_by(tickets: Tickets, principal: Principal = LOCAL, session: str | None = "s") -> str:
    """The secret of a new ticket."""

    async def create() -> str:
        answer = await tickets.tool.run(Call(principal, session=session), {"ref": "root://work/a"})
        return answer["path"].split("/")[3]

    return anyio.run(create)


def test_a_ticket_ends_after_ten_minutes() -> None:
    clock = ManualClock()
    tickets = Tickets(clock)
    secret = made_by(tickets)
    clock.now += 599
    assert tickets.find(secret) is not None
    clock.now += 2
    assert tickets.find(secret) is None


def test_a_caller_has_a_limited_number_of_tickets() -> None:
    tickets = Tickets()
    of_other = made_by(tickets, ANYONE, None)
    first, second, *_ = [made_by(tickets) for _ in range(1001)]
    assert tickets.find(first) is None
    assert tickets.find(second) is not None
    assert tickets.find(of_other) is not None


def test_only_a_session_has_tickets() -> None:
    with pytest.raises(ArmariumError) as refused:
        made_by(Tickets(), LOCAL, None)
    assert refused.value.code == "NOT_PERMITTED"
