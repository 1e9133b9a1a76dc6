"""`/api/status`, `/api/metrics/series` and `/api/admin`: who sees what, and how administrators manage keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from armarium.foundation.schema import SchemaCheck
from armarium.foundation.security.identity import key_hash
from armarium.surfaces.operations.app import declared_routes
from support.server import ServerProcess, installed_command, write_config
from support.waiting import eventually, wait_until

KEYS = {"ann": "key-of-ann", "boss": "key-of-boss", "gauge": "key-of-gauge"}
GROUPS = {"boss": ["admin"], "gauge": ["metrics"]}
ADMIN_PATHS = ["/api/admin/keys", "/api/admin/settings", "/api/admin/doctor"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("served")
    (directory / "root").mkdir()
    keys = [
        {"username": name, "groups": GROUPS.get(name, []), "key_sha256": key_hash(key)} for name, key in KEYS.items()
    ]
    settings = {
        "state_dir": str(directory / "state"),
        "server": {"port": 0},
        "security": {"auth": "keys", "keys": keys},
        "sandbox": {"roots": [{"name": "work", "path": str(directory / "root"), "allowed_tools": ["*"]}]},
        "gateway": {},
        "corpus": {"root": str(directory / "root")},
    }
    config = write_config(directory, settings)
    with ServerProcess([installed_command("armarium"), "serve", "--config", str(config)]) as process:
        yield process


def send(served: ServerProcess, key: str, method: str, path: str, body: Any = None) -> httpx.Response:
    return httpx.request(method, served.url + path, headers=bearer(key), json=body, timeout=60)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_the_status_shows_what_is_served_and_the_load_only_to_some(served: ServerProcess) -> None:
    status = send(served, KEYS["ann"], "GET", "/api/status").json()
    assert {each["name"] for each in status["capabilities"]} == {"sandbox", "gateway", "corpus"}
    assert all(each["ready"] for each in status["capabilities"])
    assert status["features"]["authentication"] is True
    assert "load" not in status
    load = send(served, KEYS["gauge"], "GET", "/api/status").json()["load"]
    assert load["memory_bytes"] > 0
    assert load["free_disk_bytes"] > 0
    assert load["calls_in_flight"] == 1


def test_a_point_of_a_series_may_be_missing() -> None:
    tool = next(route.tool for _, routes in declared_routes() for route in routes if route.tool.name == "metric_series")
    assert tool.output_schema is not None
    answer = {"step_s": 5, "until": "", "series": [{"name": "calls", "unit": "", "values": [None, 1.5]}]}
    SchemaCheck(tool.output_schema).check(answer)


async def test_series_are_for_those_who_may_read_metrics(served: ServerProcess) -> None:
    refused = send(served, KEYS["ann"], "GET", "/api/metrics/series")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "GROUP_REQUIRED")

    def memory() -> list[float]:
        answer = send(served, KEYS["gauge"], "GET", "/api/metrics/series?names=memory,calls").json()
        assert [each["name"] for each in answer["series"]] == ["memory", "calls"]
        assert answer["step_s"] == 5
        return answer["series"][0]["values"]

    await eventually(memory, what="a first sample")
    unknown = send(served, KEYS["gauge"], "GET", "/api/metrics/series?names=memory,colour")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (400, "INVALID_ARGUMENT")
    assert send(served, KEYS["gauge"], "GET", "/api/metrics/series?window=1y").status_code == 400


@pytest.mark.parametrize("path", ADMIN_PATHS)
@pytest.mark.parametrize("name", ["ann", "gauge"])
def test_administration_is_for_its_group(served: ServerProcess, path: str, name: str) -> None:
    refused = send(served, KEYS[name], "GET", path)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "GROUP_REQUIRED")
    refused = send(served, KEYS[name], "POST", "/api/admin/keys", {"name": "mine", "groups": ["admin"]})
    assert refused.status_code == 403


def test_an_administrator_adds_rotates_and_revokes_a_key(served: ServerProcess) -> None:
    boss = KEYS["boss"]
    wish = {"name": "laptop", "groups": ["users"], "capabilities": ["sandbox"], "access": "read"}
    added = send(served, boss, "POST", "/api/admin/keys", wish)
    assert added.status_code == 201
    secret = added.json()["secret"]
    status = send(served, secret, "GET", "/api/status").json()
    assert [each["name"] for each in status["capabilities"]] == ["sandbox"]
    listed = {key["name"]: key for key in send(served, boss, "GET", "/api/admin/keys").json()["keys"]}
    assert listed["laptop"]["access"] == "read"
    assert listed["laptop"]["managed"] is True
    assert listed["ann"]["managed"] is False
    again = send(served, boss, "POST", "/api/admin/keys", wish)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "KEY_EXISTS")

    rotated = send(served, boss, "POST", "/api/admin/keys/laptop/rotate", {}).json()["secret"]
    assert send(served, secret, "GET", "/api/status").status_code == 401
    assert send(served, rotated, "GET", "/api/status").status_code == 200
    assert send(served, boss, "DELETE", "/api/admin/keys/laptop").json() == {"revoked": "laptop"}
    assert send(served, rotated, "GET", "/api/status").status_code == 401
    for method, path in (("DELETE", "/api/admin/keys/laptop"), ("POST", "/api/admin/keys/laptop/rotate")):
        missing = send(served, boss, method, path, {} if method == "POST" else None)
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "KEY_NOT_FOUND")
    calls = send(served, boss, "GET", "/api/audit?capability=operations&limit=1000").text
    assert secret not in calls
    assert rotated not in calls


def test_a_restricted_key_of_an_administrator_cannot_make_a_wider_one(served: ServerProcess) -> None:
    boss = KEYS["boss"]
    for name, traits in (("narrow", {"capabilities": ["sandbox"]}), ("reader", {"access": "read"})):
        key = send(served, boss, "POST", "/api/admin/keys", {"name": name, "groups": ["admin"], **traits}).json()
        refused = send(served, key["secret"], "POST", "/api/admin/keys", {"name": "wide", "groups": ["admin"]})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "NOT_PERMITTED")


@pytest.mark.parametrize(
    "wish",
    [
        {"name": "../x"},
        {"name": "x", "capabilities": ["kitchen"]},
        {"name": "x", "expires_at": "2020-01-01T00:00:00Z"},
        {"name": "x", "expires_at": "soon"},
        {"name": "x", "requests_per_second": 0},
        {"name": "x", "colour": "blue"},
    ],
)
def test_a_wrong_key_is_refused(served: ServerProcess, wish: dict[str, Any]) -> None:
    refused = send(served, KEYS["boss"], "POST", "/api/admin/keys", wish)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "INVALID_ARGUMENT")


async def test_the_list_tells_when_a_key_was_used_last(served: ServerProcess) -> None:
    assert send(served, KEYS["ann"], "GET", "/api/status").status_code == 200

    def used() -> bool:
        keys = send(served, KEYS["boss"], "GET", "/api/admin/keys").json()["keys"]
        return any(key["name"] == "ann" and "last_call_at" in key for key in keys)

    await eventually(used)


def test_settings_are_shown_without_secrets(served: ServerProcess) -> None:
    answer = send(served, KEYS["boss"], "GET", "/api/admin/settings")
    settings = {each["name"]: each for each in answer.json()["settings"]}
    assert settings["server.port"]["value"] == 0
    assert settings["server.port"]["is_set"] is True
    assert settings["server.host"] == settings["server.host"] | {"value": "127.0.0.1", "is_set": False}
    assert settings["sandbox.roots"]["value"][0]["name"] == "work"
    for key in KEYS.values():
        assert key not in answer.text
        assert key_hash(key) not in answer.text


def test_the_checks_are_those_of_the_doctor(served: ServerProcess) -> None:
    answer = send(served, KEYS["boss"], "GET", "/api/admin/doctor").json()
    assert answer["ok"] is all(each["state"] != "fail" for each in answer["checks"])
    assert {"open files", "state directory", "audit log", "access"} <= {each["subject"] for each in answer["checks"]}
    # The server that answers is the one that indexes.
    assert not [each for each in answer["checks"] if "another process" in each["message"]]


def test_callers_receive_events_of_their_own_calls_and_administrators_of_all(served: ServerProcess) -> None:
    def first_call(listener: str, *, of: str) -> dict[str, Any]:
        """The first event about a call of `server_status` that the listener receives after one of `of`."""
        with httpx.stream("GET", f"{served.url}/api/events", headers=bearer(KEYS[listener]), timeout=60) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith(":")
            send(served, KEYS[of], "GET", "/api/status")
            send(served, KEYS[listener], "GET", "/api/status")
            for line in lines:
                if line.startswith("data:") and "server_status" in line:
                    return json.loads(line.removeprefix("data:"))
        raise AssertionError("the stream ended")

    assert first_call("ann", of="boss")["principal"] == "ann"
    event = first_call("boss", of="ann")
    assert event["principal"] == "ann"
    assert event["skipped"] == 0
    assert not {"arguments", "apikey_hash", "session", "resolved_path"} & event.keys()


def test_a_key_for_a_capability_sees_no_calls_and_metrics_of_others(served: ServerProcess) -> None:
    """Whatever its groups: the audit log and the metrics tell of all capabilities."""
    wish = {"name": "narrow-auditor", "groups": ["admin"], "capabilities": ["sandbox"]}
    narrow = send(served, KEYS["boss"], "POST", "/api/admin/keys", wish).json()["secret"]
    send(served, KEYS["ann"], "GET", "/api/status")

    def own_calls() -> bool:
        send(served, narrow, "GET", "/api/status")
        return any(
            each["principal"] == "narrow-auditor" for each in send(served, narrow, "GET", "/api/audit").json()["calls"]
        )

    wait_until(own_calls, what="its own calls are in the audit log")
    calls = send(served, narrow, "GET", "/api/audit").json()["calls"]
    assert {each["principal"] for each in calls} == {"narrow-auditor"}
    facets = send(served, narrow, "GET", "/api/audit/facets").json()["facets"]
    assert set(facets["principal"]) == {"narrow-auditor"}
    assert send(served, narrow, "GET", "/metrics").status_code == 403
    assert send(served, narrow, "GET", "/api/metrics/series").status_code == 403
    with httpx.stream("GET", f"{served.url}/api/events", headers=bearer(narrow), timeout=60) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith(":")
        send(served, KEYS["ann"], "GET", "/api/status")
        send(served, narrow, "GET", "/api/status")
        first = next(line for line in lines if line.startswith("data:"))
        assert json.loads(first.removeprefix("data:"))["principal"] == "narrow-auditor"


def test_without_keys_everybody_reads_metrics_and_nobody_administers(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    settings = {
        "state_dir": str(tmp_path / "state"),
        "server": {"port": 0},
        "security": {"auth": "none"},
        "sandbox": {"roots": [{"name": "work", "path": str(tmp_path / "root"), "allowed_tools": ["*"]}]},
    }
    command = [installed_command("armarium"), "serve", "--config", str(write_config(tmp_path, settings))]
    with ServerProcess(command) as process:
        assert httpx.get(f"{process.url}/api/metrics/series", timeout=60).status_code == 200
        assert httpx.get(f"{process.url}/api/admin/keys", timeout=60).status_code == 403
