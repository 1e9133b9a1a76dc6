"""Principals, keys, and the generated token."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from armarium.foundation.errors import ConfigError
from armarium.foundation.security.identity import (
    ANYONE,
    LOCAL,
    Authenticator,
    Principal,
    ensure_token,
    key_hash,
    read_token,
)

ADA = Principal("ada", ("engines",), key_hash("ada's key"))
BABBAGE = Principal("babbage", (), key_hash("babbage's key"))


@pytest.mark.contract("S6.1-1")
def test_a_key_is_known_by_its_sha256() -> None:
    assert key_hash("schlüssel") == hashlib.sha256("schlüssel".encode()).hexdigest()


def test_each_key_belongs_to_its_principal_and_no_other_key_to_anyone() -> None:
    callers = Authenticator((ADA, BABBAGE))
    assert callers.identify("ada's key") == ADA
    assert callers.identify("babbage's key") == BABBAGE
    for wrong in ("", "ada's key ", "Ada's key", ADA.apikey_hash, "x" * 100_000):
        assert callers.identify(wrong) is None


def test_no_key_is_nobody_unless_the_server_is_open_to_anyone() -> None:
    assert Authenticator((ADA,)).identify(None) is None
    assert Authenticator(()).identify("") is None
    assert Authenticator((), open_to_anyone=True).identify(None) == ANYONE
    assert Authenticator((), open_to_anyone=True).identify("any key") == ANYONE


def test_those_who_need_no_key_are_told_apart_from_those_who_have_one() -> None:
    assert len({ANYONE, LOCAL, ADA}) == 3


def test_every_known_key_is_compared_in_constant_time_whatever_is_presented(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(known: bytes, presented: bytes) -> bool:
        compared.append(known)
        return known == presented

    monkeypatch.setattr("armarium.foundation.security.identity.hmac.compare_digest", compare)
    callers = Authenticator((ADA, BABBAGE))
    assert callers.identify("ada's key") == ADA
    assert callers.identify("nobody's key") is None
    assert compared == [ADA.apikey_hash.encode(), BABBAGE.apikey_hash.encode()] * 2


def test_a_token_is_made_once_for_its_owner_alone_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "state" / "armarium" / "secret.token"
    token = ensure_token(file)
    assert len(token) >= 40
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert ensure_token(file) == token == read_token(file)
    assert [entry.name for entry in file.parent.iterdir()] == ["secret.token"], "nothing is left behind"


def test_a_token_is_private_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ensure_token(tmp_path / "secret.token")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "secret.token").stat().st_mode) == 0o600


def test_two_servers_never_make_the_same_token(tmp_path: Path) -> None:
    assert ensure_token(tmp_path / "a") != ensure_token(tmp_path / "b")


def test_several_processes_that_start_at_once_agree_on_one_token(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from armarium.foundation.security.identity import ensure_token
sys.stdin.read()  # all wait here until the starting shot
print(ensure_token(Path(sys.argv[1])))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "state" / "secret.token")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    racers = [subprocess.Popen(command, **pipes) for _ in range(6)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.close()
        racer.stdin = None
    tokens = [racer.communicate(timeout=60)[0].strip() for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 6
    assert len(set(tokens)) == 1
    assert tokens[0] == read_token(tmp_path / "state" / "secret.token")


def test_a_token_that_exists_is_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "secret.token"
    file.write_text("my own token\n")
    assert ensure_token(file) == "my own token"
    assert file.read_text() == "my own token\n"


def test_white_space_around_a_token_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("  abc def \r\n\n")
    assert read_token(tmp_path / "token") == "abc def"


@pytest.mark.parametrize("content", ["", " \n"])
def test_an_empty_token_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(ConfigError, match="empty"):
        read_token(tmp_path / "token")


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(ConfigError, match=str(path)):
            read_token(path)
