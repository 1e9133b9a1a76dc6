"""`security.auth`: who may call in each mode, and where a mode is rejected."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from armarium.foundation.errors import ConfigError
from armarium.foundation.security.authentication import open_authenticator, token_path
from armarium.foundation.security.identity import ANYONE, key_hash
from armarium.foundation.security.keys import KeyFile
from armarium.foundation.security.network import is_loopback
from armarium.foundation.settings.loader import load_settings
from armarium.foundation.settings.model import CoreSettings
from support.mcp_messages import calling, http_client, open_session, opening, serving
from support.mcp_test_server import build


def settings(state: Path, auth: str = "auto", *, host: str = "127.0.0.1", **security: Any) -> CoreSettings:
    flags = {"state_dir": str(state), "server.host": host, "security": {"auth": auth, **security}}
    return load_settings(CoreSettings, flags=flags)


def test_auto_makes_one_token_for_its_owner_alone_and_keeps_it(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    callers = open_authenticator(chosen)
    file = token_path(chosen)
    assert file is not None
    token = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    principal = callers.identify(token)
    assert principal is not None
    assert (principal.username, principal.groups, principal.apikey_hash) == ("token", (), key_hash(token))
    assert callers.identify(None) is None
    assert callers.identify(token + "x") is None
    assert open_authenticator(chosen).identify(token) == principal, "the next start takes the same one"


def test_a_file_holds_the_token_and_is_not_made_by_us(tmp_path: Path) -> None:
    file = tmp_path / "team.token"
    with pytest.raises(ConfigError, match=r"team\.token"):
        open_authenticator(settings(tmp_path, f"file:{file}"))
    assert not file.exists()
    file.write_text("a token the team agreed on\n")
    callers = open_authenticator(settings(tmp_path, f"file:{file}"))
    assert callers.identify("a token the team agreed on") is not None
    assert callers.identify("a token the team agreed on\n") is None


def test_a_token_file_may_be_in_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "t").write_text("home token")
    assert open_authenticator(settings(tmp_path, "file:~/t")).identify("home token") is not None


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_none_lets_anyone_in_on_a_loopback_address(tmp_path: Path, host: str) -> None:
    assert open_authenticator(settings(tmp_path, "none", host=host)).identify(None) == ANYONE
    assert token_path(settings(tmp_path, "none", host=host)) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "files.example.com", "localhost.example.com"])
def test_none_is_refused_where_others_can_reach_the_server(tmp_path: Path, host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ConfigError, match=r"security\.auth is none") as refusal:
        open_authenticator(settings(tmp_path, "none", host=host))
    assert host in refusal.value.message
    assert refusal.value.hint


def test_keys_need_at_least_one_caller(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no key"):
        open_authenticator(settings(tmp_path, "keys"))


def test_a_key_of_the_key_file_is_a_caller_too(tmp_path: Path) -> None:
    chosen = settings(tmp_path, "keys")
    _, secret = KeyFile(chosen.keys_file()).add("ada", groups=("poets",))
    principal = open_authenticator(chosen).identify(secret)
    assert principal is not None
    assert (principal.username, principal.groups) == ("ada", ("poets",))


async def test_keys_tell_every_caller_by_name_and_groups(tmp_path: Path) -> None:
    keys = [
        {"username": "ada", "groups": ["engines", "poets"], "key_sha256": key_hash("ada's key")},
        {"username": "bob", "key_sha256": key_hash("bob's key")},
    ]
    callers = open_authenticator(settings(tmp_path, "keys", keys=keys))
    async with serving(build(authenticator=callers).app) as url:
        for key, username, groups in (("ada's key", "ada", ["engines", "poets"]), ("bob's key", "bob", [])):
            async with http_client(url, key) as client:
                session = await open_session(client)
                answer = await client.post("/mcp", json=calling("whoami"), headers=session)
                seen = answer.json()["result"]["structuredContent"]
                assert (seen["username"], seen["groups"], seen["apikey_hash"]) == (username, groups, key_hash(key))
        async with http_client(url, key_hash("ada's key")) as thief:
            assert (await thief.post("/mcp", json=opening())).status_code == 401, "the hash is not the key"


@pytest.mark.parametrize("auth", ["", "Auto", "token", "file:", "key"])
def test_other_modes_are_refused_by_name(tmp_path: Path, auth: str) -> None:
    with pytest.raises(ConfigError, match=r"security\.auth"):
        settings(tmp_path, auth)


@pytest.mark.parametrize("wrong", ["", "abc", "A" * 64, "g" * 64, "0" * 65])
def test_what_is_no_sha256_is_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ConfigError, match="key_sha256"):
        settings(tmp_path, "keys", keys=[{"username": "ada", "key_sha256": wrong}])
