"""The sources of keys, their order, and the privacy of stored keys."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Literal

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import null
from keyring.errors import KeyringLocked

from armarium.capabilities.corpus.commands.secret_store import (
    SecretSource,
    SecretStore,
    keychain_available,
    read_secret_file,
    write_secret_file,
)
from armarium.capabilities.corpus.commands.settings import KeychainSettings, SecretFileSettings, SecretSettings
from armarium.foundation.errors import ConfigError

NAME = "MISTRAL_API_KEY"
SecretProvider = Literal["auto", "keychain", "file", "env", "session"]


class Keychain(KeyringBackend):
    """A keychain in memory."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], str] = {}
        self.asked = 0
        self.locked = False

    def get_password(self, service: str, username: str) -> str | None:
        self.asked += 1
        if self.locked:
            raise KeyringLocked
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.locked:
            raise KeyringLocked
        self.entries[service, username] = password


@pytest.fixture
def keychain() -> Generator[Keychain]:
    before = keyring.get_keyring()
    made = Keychain()
    keyring.set_keyring(made)
    yield made
    keyring.set_keyring(before)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "secret.env"


def secret_store(environ: dict[str, str], file: Path, provider: SecretProvider = "auto") -> SecretStore:
    return SecretStore(environ, file, SecretSettings(provider=provider, keychain=KeychainSettings(account="me")))


def found(store: SecretStore, *, ask_keychain: bool = True) -> tuple[str, str] | None:
    secret = store.find(NAME, ask_keychain=ask_keychain)
    return (secret.source, secret.value) if secret else None


def test_the_environment_comes_first_then_the_keychain_then_the_file_then_the_session(
    keychain: Keychain, file: Path
) -> None:
    environ = {NAME: "of the environment"}
    store = secret_store(environ, file)
    store.store(NAME, "of the person", "session")
    assert found(secret_store({}, file)) is None
    store.store(NAME, "of the file", "file")
    keychain.entries["dir2mcp", f"me:{NAME}"] = "of the keychain"
    assert found(store) == ("env", "of the environment")
    del environ[NAME]
    assert found(store) == ("keychain", "of the keychain")
    keychain.entries.clear()
    assert found(store) == ("file", "of the file")
    file.unlink()
    assert found(store) == ("session", "of the person")


@pytest.mark.parametrize(
    ("provider", "source"),
    [("auto", "keychain"), ("keychain", "keychain"), ("file", "file"), ("env", None), ("session", None)],
)
def test_only_the_provider_that_was_chosen_is_asked(
    keychain: Keychain, file: Path, provider: SecretProvider, source: SecretSource | None
) -> None:
    keychain.entries["dir2mcp", f"me:{NAME}"] = "k"
    write_secret_file(file, NAME, "f")
    secret = found(secret_store({}, file, provider))
    assert (secret[0] if secret else None) == source


def test_a_keychain_that_is_not_configured_is_only_used_for_a_required_key(keychain: Keychain, file: Path) -> None:
    assert found(secret_store({}, file), ask_keychain=False) is None
    assert keychain.asked == 0


def test_a_locked_keychain_counts_as_none_and_cannot_keep_a_key(keychain: Keychain, file: Path) -> None:
    keychain.locked = True
    assert found(secret_store({}, file)) is None
    with pytest.raises(ConfigError):
        secret_store({}, file).store(NAME, "x", "keychain")


def test_a_key_kept_in_the_keychain_is_found_there(keychain: Keychain, file: Path) -> None:
    secret_store({}, file).store(NAME, "kept", "keychain")
    assert found(secret_store({}, file, "keychain")) == ("keychain", "kept")
    assert not file.exists()


def test_without_a_keychain_keeping_a_key_there_is_an_error_that_says_what_to_do(file: Path) -> None:
    before = keyring.get_keyring()
    keyring.set_keyring(null.Keyring())
    try:
        assert not keychain_available()
        with pytest.raises(ConfigError) as refused:
            secret_store({}, file).store(NAME, "x", "keychain")
        assert refused.value.hint
    finally:
        keyring.set_keyring(before)


def test_a_required_key_of_a_locked_or_missing_keychain_is_an_error_if_no_other_source_is_allowed(
    keychain: Keychain, file: Path
) -> None:
    write_secret_file(file, NAME, "elsewhere")
    keychain.locked = True
    store = secret_store({}, file, "keychain")
    with pytest.raises(ConfigError) as refused:
        store.find(NAME, ask_keychain=True)
    assert "secrets.provider" in str(refused.value.hint)
    assert store.find(NAME) is None
    keyring.set_keyring(null.Keyring())
    with pytest.raises(ConfigError):
        store.find(NAME, ask_keychain=True)
    assert found(secret_store({NAME: "set"}, file, "keychain")) == ("env", "set")


@pytest.mark.parametrize("mode", ["0600", "0400"])
def test_a_file_of_secrets_has_the_configured_mode_and_a_more_open_one_is_refused(file: Path, mode: str) -> None:
    settings = SecretSettings(provider="file", file=SecretFileSettings(mode=mode))
    store = SecretStore({}, file, settings)
    store.store(NAME, "canary", "file")
    store.store(NAME, "canary-2", "file")
    assert stat.S_IMODE(file.stat().st_mode) == int(mode, 8)
    assert found(store) == ("file", "canary-2")
    file.chmod(int(mode, 8) | 0o040)
    with pytest.raises(ConfigError) as refused:
        store.find(NAME)
    assert refused.value.hint == f"chmod {mode.lstrip('0')} {file}"
    assert "canary" not in str(refused.value)


def test_a_file_of_secrets_that_is_a_pipe_does_not_block(file: Path) -> None:
    file.parent.mkdir()
    os.mkfifo(file, 0o600)
    with pytest.raises(ConfigError):
        read_secret_file(file)


def test_a_file_of_secrets_is_private_and_keeps_what_else_is_in_it(file: Path) -> None:
    write_secret_file(file, "OTHER", "1")
    write_secret_file(file, NAME, "old")
    write_secret_file(file, NAME, "new=with=equals")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert read_secret_file(file) == {"OTHER": "1", NAME: "new=with=equals"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_of_secrets_that_others_can_read_is_refused(file: Path, mode: int) -> None:
    write_secret_file(file, NAME, "canary")
    file.chmod(mode)
    with pytest.raises(ConfigError) as refused:
        secret_store({}, file).find(NAME)
    assert "chmod 600" in str(refused.value.hint)
    assert "canary" not in refused.value.message


def test_a_file_of_secrets_may_have_comments_quotes_and_exports(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("# keys\n\nexport A='1 2'\nB = \"3\"\nnot an assignment\nC=\n")
    file.chmod(0o600)
    assert read_secret_file(file) == {"A": "1 2", "B": "3", "C": ""}


def test_a_file_of_secrets_that_is_no_text_is_an_error(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"\xff\xfe\x00")
    file.chmod(0o600)
    with pytest.raises(ConfigError):
        read_secret_file(file)


def test_a_secret_does_not_show_its_value() -> None:
    secret = SecretStore({NAME: "canary"}, Path("nowhere"), SecretSettings()).find(NAME)
    assert secret is not None
    assert "canary" not in repr(secret)
