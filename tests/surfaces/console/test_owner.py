"""The owner and the token that agents carry: one tenant of the store, two persons in all that is kept for a person."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from armarium.foundation.security.authentication import open_authenticator
from armarium.foundation.settings.model import CoreSettings
from armarium.surfaces.console.links import OwnerLinks
from support.server import ServerProcess, installed_command, write_config
from support.waiting import wait_until


@contextmanager
def both(base: Path) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """The browser of the owner, and an agent with the token."""
    (base / "root").mkdir()
    settings = {
        "state_dir": str(base / "state"),
        "server": {"port": 0},
        "sandbox": {"roots": [{"name": "work", "path": str(base / "root"), "allowed_tools": ["*"]}]},
        "gateway": {"config_dir": str(base / "config"), "watch": False},
    }
    with ServerProcess([installed_command("armarium"), "serve", "--config", str(write_config(base, settings))]) as each:
        token = (base / "state/secret.token").read_text().strip()
        with (
            httpx.Client(base_url=each.url, timeout=60) as owner,
            httpx.Client(base_url=each.url, timeout=60, headers={"authorization": f"Bearer {token}"}) as agent,
        ):
            opened = owner.post("/api/session", json={"code": OwnerLinks(base / "state").create()})
            owner.headers["x-armarium-proof"] = opened.json()["proof"]
            yield owner, agent


def test_what_is_kept_for_a_person_is_kept_apart(tmp_path: Path) -> None:
    with both(tmp_path) as (owner, agent):
        assert owner.get("/api/session").json()["principal"]["name"] == "owner"
        assert agent.get("/api/session").json()["principal"]["name"] == "token"

        assert owner.post("/api/threads", json={"title": "Private"}).status_code == 201
        assert [each["title"] for each in owner.get("/api/threads").json()["threads"]] == ["Private"]
        assert agent.get("/api/threads").json()["threads"] == []

        chosen = {"selectedServers": ["papers"]}
        assert owner.put("/api/rag/selection", json=chosen).status_code == 200
        assert "papers" in owner.get("/api/rag/selection").text
        assert "papers" not in agent.get("/api/rag/selection").text

        def callers(client: httpx.Client, **query: str) -> set[str]:
            return {each["principal"] for each in client.get("/api/audit", params=query).json()["calls"]}

        wait_until(lambda: callers(agent), what="the calls of the agent are in the audit log")
        assert callers(agent) == {"token"}
        assert callers(owner) == {"owner", "token"}
        assert callers(owner, principal="owner") == {"owner"}


@pytest.mark.parametrize("auth", ["auto", "file"])
def test_they_have_the_same_files_in_the_store(tmp_path: Path, auth: str) -> None:
    file = tmp_path / "secret.token"
    file.write_text("a long random token")
    security = {"auth": auth if auth == "auto" else f"file:{file}"}
    authenticator = open_authenticator(CoreSettings.model_validate({"state_dir": str(tmp_path), "security": security}))
    token, owner = authenticator.identify("a long random token"), authenticator.owner()
    assert token is not None
    # The tenant of the store.
    assert token.apikey_hash == owner.apikey_hash
    assert token.person != owner.person
    assert (token.username, token.is_owner) == ("token", False)
    assert (owner.username, owner.is_owner) == ("owner", True)
