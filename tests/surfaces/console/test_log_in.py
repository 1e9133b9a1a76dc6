"""Logging in to the console, over real HTTP: keys, links, cookies and proofs, and what a stranger cannot do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from armarium.foundation.security.identity import key_hash
from armarium.surfaces.console.links import OwnerLinks
from support.server import ServerProcess, installed_command, write_config
from support.waiting import eventually

KEYS = {"ann": "key-of-ann", "boss": "key-of-boss", "locked": "key-of-locked"}
WRONG = "a wrong key that must be in no log"


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, state_dir: Path) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("served")
    (directory / "root").mkdir()
    (directory / "root" / "a.txt").write_text("content\n")
    keys = [
        {"username": name, "groups": ["admin"] if name == "boss" else [], "key_sha256": key_hash(key)}
        for name, key in KEYS.items()
    ]
    settings = {
        "state_dir": str(state_dir),
        "server": {"port": 0},
        "security": {"auth": "keys", "keys": keys},
        "sandbox": {"roots": [{"name": "work", "path": str(directory / "root"), "allowed_tools": ["*"]}]},
    }
    config = write_config(directory, settings)
    with ServerProcess([installed_command("armarium"), "serve", "--config", str(config)]) as process:
        yield process


class Browser:
    """A browser at one address of the server: it keeps the cookie and, for the console's own pages, the proof."""

    def __init__(self, served: ServerProcess) -> None:
        own = {"origin": served.url, "sec-fetch-site": "same-origin"}
        self.http = httpx.Client(base_url=served.url, headers=own, timeout=30)
        self.proof = ""

    def log_in(self, **shown: str) -> httpx.Response:
        answer = self.http.post("/api/session", json=shown)
        if answer.is_success:
            self.proof = answer.json()["proof"]
        return answer

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"x-armarium-proof": self.proof} | more.pop("headers", {})
        return self.http.request(method, path, headers=headers, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)


@pytest.fixture
def browser(served: ServerProcess) -> Iterator[Browser]:
    opened = Browser(served)
    with opened.http:
        yield opened


def code_of(answer: httpx.Response) -> str:
    body = answer.json()
    return body["error"]["code"] if isinstance(body.get("error"), dict) else body["code"]


def test_a_key_logs_in_as_its_caller(browser: Browser) -> None:
    answer = browser.log_in(key=f" {KEYS['ann']}\n")
    assert answer.status_code == 201
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"armarium_{browser.http.base_url.port}=")
    assert {"Path=/", "HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
    shown = answer.json()
    assert shown["principal"]["name"] == "ann"
    assert shown["principal"]["capabilities"] == ["sandbox"]
    assert shown["principal"]["is_owner"] is False
    assert shown["authentication"] is True
    assert KEYS["ann"] not in answer.text + str(answer.headers)
    without_proof = {name: value for name, value in shown.items() if name != "proof"}
    again = browser.get("/api/session")
    assert again.status_code == 200
    assert again.json() | {"expires_at": ""} == without_proof | {"expires_at": ""}


def test_without_the_proof_or_the_cookie_nobody_is_logged_in(browser: Browser) -> None:
    browser.log_in(key=KEYS["ann"])
    assert browser.get("/api/session", headers={"x-armarium-proof": ""}).status_code == 401
    assert browser.get("/api/session", headers={"cookie": "armarium_1=x"}).status_code == 401
    browser.http.cookies.clear()
    assert browser.get("/api/session").status_code == 401


@pytest.mark.parametrize(
    "page",
    [
        {"origin": "http://127.0.0.1:1", "sec-fetch-site": "same-site"},
        {"origin": "http://evil.example", "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=["another port", "another site", "a navigation from another port"],
)
def test_other_pages_can_use_neither_the_session_nor_the_log_in(browser: Browser, page: dict[str, str]) -> None:
    browser.log_in(key=KEYS["ann"])
    forged = browser.get("/api/session", headers=page)
    if "origin" not in page:
        browser.http.headers.pop("origin")
        forged = browser.get("/api/session", headers=page)
    assert forged.status_code == 403
    assert browser.http.post("/api/session", json={"key": KEYS["ann"]}, headers=page).status_code == 403


@pytest.mark.parametrize("path", ["/mcp", "/mcp/sandbox", "/metrics"])
def test_a_session_is_worth_nothing_outside_of_the_api(browser: Browser, path: str) -> None:
    browser.log_in(key=KEYS["boss"])
    method = "GET" if path == "/metrics" else "POST"
    assert browser.request(method, path, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}).status_code == 401


def test_a_key_in_the_request_counts_instead_of_the_session(browser: Browser) -> None:
    browser.log_in(key=KEYS["ann"])
    as_boss = browser.get("/api/session", headers={"authorization": f"Bearer {KEYS['boss']}"})
    assert as_boss.json()["principal"]["name"] == "boss"
    assert browser.get("/api/session", headers={"authorization": "Bearer wrong"}).status_code == 401


def test_every_log_in_has_new_secrets(browser: Browser) -> None:
    """A session that somebody planted in the browser is not the one that is logged in."""
    name, planted = f"armarium_{browser.http.base_url.port}", "planted"

    def secrets_of_log_in() -> set[str]:
        answer = browser.http.post("/api/session", json={"key": KEYS["ann"]}, headers={"cookie": f"{name}={planted}"})
        return {answer.headers["set-cookie"].partition(";")[0].removeprefix(f"{name}="), answer.json()["proof"]}

    first, second = secrets_of_log_in(), secrets_of_log_in()
    assert len(first | second) == 4
    assert planted not in first | second


def test_a_cookie_that_another_port_sets_neither_logs_in_nor_out(browser: Browser) -> None:
    """Cookies know no port, so a page of another port can set one of the same name for a longer path."""
    cookie = browser.log_in(key=KEYS["ann"]).headers["set-cookie"].partition(";")[0]
    name = cookie.partition("=")[0]
    both = browser.get("/api/session", headers={"cookie": f"{name}=planted; {cookie}"})
    assert (both.status_code, both.json()["principal"]["name"]) == (200, "ann")
    assert browser.get("/api/session", headers={"cookie": f"{name}=planted"}).status_code == 401


def test_the_session_of_one_caller_is_no_use_with_the_proof_of_another(browser: Browser, served: ServerProcess) -> None:
    """Somebody who plants the cookie of their own session in another browser does not get what is done there."""
    other = Browser(served)
    cookie = other.log_in(key=KEYS["locked"]).headers["set-cookie"].partition(";")[0]
    browser.log_in(key=KEYS["ann"])
    browser.http.cookies.clear()
    assert browser.get("/api/session", headers={"cookie": cookie}).status_code == 401
    other.http.close()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_page_that_rebinds_its_name_to_this_server_gets_nothing(browser: Browser, method: str) -> None:
    browser.log_in(key=KEYS["ann"])
    rebound = {"host": "evil.example", "origin": "http://evil.example"}
    answer = browser.request(method, "/api/session", headers=rebound, json={"key": KEYS["ann"]})
    assert (answer.status_code, code_of(answer)) == (403, "FORBIDDEN_ORIGIN")
    assert browser.http.get("/console", headers={"host": "evil.example"}).status_code == 403


def test_logging_out_ends_this_session_and_everywhere_all_of_the_caller(served: ServerProcess) -> None:
    browsers = [Browser(served) for _ in range(3)]
    for each in browsers:
        each.log_in(key=KEYS["ann"])
    assert browsers[0].request("DELETE", "/api/session").json() == {"sessions": 1}
    assert [each.get("/api/session").status_code for each in browsers] == [401, 200, 200]
    assert browsers[1].request("DELETE", "/api/sessions").json()["sessions"] >= 2
    assert [each.get("/api/session").status_code for each in browsers] == [401, 401, 401]
    for each in browsers:
        each.http.close()


def test_the_link_of_a_command_logs_in_the_owner_once(served: ServerProcess, state_dir: Path) -> None:
    code = OwnerLinks(state_dir).create()
    first, second = Browser(served), Browser(served)
    answer = first.log_in(code=code)
    assert answer.status_code == 201
    assert answer.json()["principal"]["is_owner"] is True
    assert answer.json()["principal"]["administers"] == ["operations"]
    again = second.log_in(code=code)
    assert (again.status_code, code_of(again)) == (401, "UNAUTHORIZED")
    assert "armarium console" in again.text
    first.http.close()
    second.http.close()


def test_a_key_creates_a_link_for_its_own_caller_and_a_session_does_not(
    served: ServerProcess, browser: Browser
) -> None:
    bearer = {"authorization": f"Bearer {KEYS['ann']}"}
    created = httpx.post(f"{served.url}/api/session/links", headers=bearer, timeout=30)
    assert created.status_code == 201
    path, _, code = created.json()["path"].partition("#in=")
    assert path == "/console"
    logged_in = browser.log_in(code=code)
    principal = logged_in.json()["principal"]
    assert "read_file" in principal.pop("tools")
    assert principal | {"groups": []} == {
        "name": "ann", "groups": [], "is_owner": False, "read_only": False, "capabilities": ["sandbox"],
        "administers": [],
    }  # fmt: skip
    assert browser.request("POST", "/api/session/links").status_code == 403


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{}", '{"key": 1}', '{"key": "a", "code": "b"}', '{"key": null}', '{"key": "a", "x": 1}', "\ud800"],
)
def test_a_malformed_log_in_is_a_clear_error(browser: Browser, body: str) -> None:
    content = body.encode(errors="surrogatepass")
    answer = browser.http.post("/api/session", content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, code_of(answer)) == (400, "BAD_REQUEST")


def test_a_large_log_in_is_refused_before_it_is_read(browser: Browser) -> None:
    assert browser.log_in(key="x" * 10_000).status_code == 413
    form = browser.http.post("/api/session", data={"key": KEYS["ann"]})
    assert form.status_code == 415


async def test_log_ins_are_recorded_and_wrong_keys_are_not(served: ServerProcess, browser: Browser) -> None:
    browser.log_in(key=WRONG)
    browser.log_in(key=KEYS["boss"])
    listing = {"capability": "console", "limit": 1000}

    def recorded() -> list[dict[str, Any]]:
        calls = browser.get("/api/audit", params=listing).json()["calls"]
        return [each for each in calls if each["tool"] == "console_log_in"]

    await eventually(lambda: len({each["code"] for each in recorded()} & {None, "UNAUTHORIZED"}) == 2)
    refused = next(each for each in recorded() if each["code"] == "UNAUTHORIZED")
    assert (refused["principal"], refused["surface"]) == ("anonymous", "console")
    assert any(each["principal"] == "boss" for each in recorded())
    assert not any(secret in json.dumps(recorded()) + served.said() for secret in (WRONG, *KEYS.values()))


async def test_calls_of_a_session_are_recorded_with_the_name_of_its_caller(browser: Browser) -> None:
    browser.log_in(key=KEYS["boss"])

    def surfaces() -> set[tuple[str, str]]:
        calls = browser.get("/api/audit", params={"tool": "list_calls"}).json()["calls"]
        return {(each["principal"], each["surface"]) for each in calls}

    await eventually(lambda: ("boss", "console") in surfaces())


def test_after_ten_wrong_attempts_an_address_must_wait(tmp_path: Path) -> None:
    """Also with the right key: guessing would not be slow otherwise."""
    (tmp_path / "root").mkdir()
    settings = {
        "state_dir": str(tmp_path / "state"),
        "server": {"port": 0},
        "sandbox": {"roots": [{"name": "work", "path": str(tmp_path / "root"), "allowed_tools": ["*"]}]},
    }
    config = write_config(tmp_path, settings)
    with ServerProcess([installed_command("armarium"), "serve", "--config", str(config)]) as process:
        opened = Browser(process)
        with opened.http:
            token = (tmp_path / "state" / "secret.token").read_text().strip()
            principal = opened.log_in(key=token).json()["principal"]
            assert "read_file" in principal.pop("tools")
            assert principal == {
                "name": "token", "groups": [], "is_owner": False, "read_only": False, "capabilities": ["sandbox"],
                "administers": [],
            }  # fmt: skip
            assert {opened.log_in(key=f"wrong {n}").status_code for n in range(10)} == {401}
            blocked = opened.log_in(key=token)
            assert (blocked.status_code, code_of(blocked)) == (429, "TOO_MANY_CALLS")
            assert 0 < int(blocked.headers["retry-after"]) <= 60
            assert opened.get("/api/session").status_code == 200


def test_without_authentication_everybody_is_anonymous_and_needs_no_log_in(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    settings = {
        "state_dir": str(tmp_path / "state"),
        "server": {"port": 0},
        "security": {"auth": "none"},
        "sandbox": {"roots": [{"name": "work", "path": str(tmp_path / "root"), "allowed_tools": ["*"]}]},
    }
    config = write_config(tmp_path, settings)
    with ServerProcess([installed_command("armarium"), "serve", "--config", str(config)]) as process:
        opened = Browser(process)
        with opened.http:
            shown = opened.get("/api/session").json()
            assert (shown["authentication"], shown["principal"]["name"]) == (False, "anonymous")
            assert opened.log_in(key="any").status_code == 401
            assert opened.request("POST", "/api/session/links").status_code == 403
