"""The key file: hashes only, changed atomically, read live, refused if others could have written it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from armarium.foundation.errors import ConfigError
from armarium.foundation.security.identity import Authenticator, Principal, key_hash
from armarium.foundation.security.keys import PREFIX, KeyExists, KeyFile, LiveKeys, UnknownKey


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "keys.json"


def identified(live: LiveKeys, secret: str) -> Principal | None:
    return Authenticator((), further=live.valid).identify(secret)


def test_a_key_identifies_its_caller_and_the_file_has_only_its_hash(path: Path) -> None:
    _, secret = KeyFile(path).add("laptop", groups=("staff",), capabilities=("sandbox",), access="read")

    assert secret.startswith(PREFIX)
    assert secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    principal = identified(LiveKeys(path), secret)
    assert principal == Principal("laptop", ("staff",), key_hash(secret), frozenset({"sandbox"}), read_only=True)
    assert identified(LiveKeys(path), secret + "x") is None


def test_changes_are_effective_without_a_restart(path: Path) -> None:
    live, file = LiveKeys(path), KeyFile(path)

    _, secret = file.add("laptop")
    assert identified(live, secret)
    _, other = file.add("desk")
    assert identified(live, other)
    file.revoke("laptop")
    assert identified(live, secret) is None
    assert identified(live, other)


def test_a_rotation_keeps_the_identity_and_ends_the_old_secret(path: Path) -> None:
    live, file = LiveKeys(path), KeyFile(path)
    _, old = file.add("laptop")
    before = identified(live, old)

    _, new = file.rotate("laptop")

    assert identified(live, old) is None
    assert identified(live, new) == before


def test_the_old_secret_stays_valid_for_the_grace_of_a_rotation(path: Path) -> None:
    clock = Clock()
    live, file = LiveKeys(path, now=clock), KeyFile(path, now=clock)
    _, old = file.add("laptop")

    _, new = file.rotate("laptop", grace=timedelta(hours=1))

    assert identified(live, old) == identified(live, new) is not None
    clock.now += timedelta(hours=1)
    assert identified(live, old) is None
    assert identified(live, new)


def test_an_expired_key_identifies_nobody(path: Path) -> None:
    clock = Clock()
    live = LiveKeys(path, now=clock)
    _, secret = KeyFile(path, now=clock).add("laptop", expires_at=clock.now + timedelta(days=1))

    assert identified(live, secret)
    clock.now += timedelta(days=1)
    assert identified(live, secret) is None


def test_names_are_unique_and_unknown_ones_are_refused(path: Path) -> None:
    file = KeyFile(path)
    file.add("laptop")

    with pytest.raises(KeyExists):
        file.add("laptop")
    with pytest.raises(UnknownKey):
        file.rotate("desk")
    with pytest.raises(UnknownKey):
        file.revoke("desk")
    assert [key.name for key in file.read()] == ["laptop"]


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 65, "-x", "a\nb"])
def test_a_name_that_logs_could_misread_is_refused(path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        KeyFile(path).add(name)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_can_change_is_refused(path: Path, mode: int) -> None:
    KeyFile(path).add("laptop")
    path.chmod(mode)

    with pytest.raises(ConfigError, match="other users"):
        LiveKeys(path)


@pytest.mark.parametrize("content", ["", "{}x", '{"version": 2}', '{"keys": [{"name": "x"}]}', "\xff"])
def test_a_damaged_file_stops_the_start(path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_text(content, encoding="latin-1")

    with pytest.raises(ConfigError, match="damaged"):
        LiveKeys(path)


def test_a_file_that_is_damaged_while_the_server_runs_admits_nobody(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, secret = KeyFile(path).add("laptop")
    live = LiveKeys(path)

    path.write_text("damaged")

    assert identified(live, secret) is None
    assert "cannot be read" in caplog.text
    assert secret not in caplog.text


def test_processes_that_add_keys_at_once_lose_none(path: Path) -> None:
    script = "import sys; from pathlib import Path; from armarium.foundation.security.keys import KeyFile\n"
    script += "for n in range(10): KeyFile(Path(sys.argv[1])).add(f'{sys.argv[2]}-{n}')"
    running = [
        subprocess.Popen([sys.executable, "-c", script, str(path), str(number)], env=os.environ) for number in range(4)
    ]

    assert [process.wait(100) for process in running] == [0] * 4
    assert len(KeyFile(path).read()) == 40
