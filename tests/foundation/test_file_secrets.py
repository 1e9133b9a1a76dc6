"""`${file:PATH}` in settings: what is accepted, and how a changed file applies."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from armarium.foundation.errors import ConfigError
from armarium.foundation.settings.file_secrets import FileSecret, read_references, revealed
from armarium.foundation.settings.loader import load_settings
from armarium.settings import Settings

KEY = "canary-key-in-a-file"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    file.chmod(0o600)
    return file


def refusal(tmp_path: Path, text: str) -> ConfigError:
    file = tmp_path / "armarium.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_settings(Settings, file)
    assert "canary" not in f"{refused.value} {refused.value.hint} {refused.value.__cause__}"
    return refused.value


SECRET_SETTINGS = [
    "store:\n  dsn: {}",
    "store:\n  redis_url: {}",
    "store:\n  security:\n    encryption_keks:\n      7: {}",
    "corpus:\n  mistral:\n    api_key: {}",
    "corpus:\n  openai:\n    api_key: {}",
    "corpus:\n  rerank:\n    api_key: {}",
    "corpus:\n  stt:\n    elevenlabs:\n      api_key: {}",
    "gateway:\n  tokens:\n    secret: {}",
    "gateway:\n  answers:\n    api_key: {}",
    "gateway:\n  rerank:\n    api_key: {}",
]


@pytest.mark.parametrize("text", SECRET_SETTINGS)
def test_every_secret_setting_may_name_a_file_and_shows_its_path_instead_of_its_value(
    tmp_path: Path, secret: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "armarium.yaml"
    file.write_text(text.format(f"${{file:{secret}}}"))
    settings = load_settings(Settings, file)
    value: object = settings
    *names, last = [line.strip().partition(":")[0] for line in text.splitlines()]
    for name in names:
        value = getattr(value, name)
    found = value[int(last)] if isinstance(value, dict) else getattr(value, last)
    assert isinstance(found, FileSecret)
    assert found.get_secret_value() == KEY
    shown = f"{settings!r} {settings} {settings.model_dump_json()} {found!r} {found}"
    assert KEY not in shown
    assert f"${{file:{secret}}}" in shown
    with caplog.at_level(logging.INFO):
        secret.write_text("canary-another-key")
        assert found.get_secret_value() == "canary-another-key"
    record = caplog.records[-1]
    assert record.__dict__["setting"] == ".".join([*names, last])
    assert "canary" not in caplog.text + str(record.__dict__)


def test_a_file_that_cannot_be_used_stops_the_start_with_the_setting(tmp_path: Path, secret: Path) -> None:
    text = f"store:\n  dsn: ${{file:{secret}}}"
    secret.chmod(0o620)
    refused = refusal(tmp_path, text)
    assert (refused.code, refused.hint) == ("CONFIG_INVALID", f"chmod go-w {secret}")
    assert refused.message.startswith("`store.dsn`: other users can write")
    secret.chmod(0o604)
    load_settings(Settings, tmp_path / "armarium.yaml")
    for content, words in [(b"\r\n", "is empty"), (b"\xffcanary", "is not UTF-8"), (b"c" * 70_000, "is larger")]:
        secret.write_bytes(content)
        assert words in refusal(tmp_path, text).message
    secret.unlink()
    assert "No such file" in refusal(tmp_path, text).message
    os.mkfifo(secret)
    assert "not a regular file" in refusal(tmp_path, text).message
    assert "absolute" in refusal(tmp_path, "store:\n  dsn: ${file:key}").message
    assert "not a regular file" in refusal(tmp_path, f"store:\n  dsn: ${{file:{tmp_path}}}").message


def test_only_a_secret_may_be_in_a_file(tmp_path: Path, secret: Path) -> None:
    refused = refusal(tmp_path, f"telemetry:\n  otlp_endpoint: ${{file:{secret}}}")
    assert "`telemetry.otlp_endpoint` is not a secret" in refused.message


def test_aliases_in_the_settings_do_not_multiply_the_work(tmp_path: Path) -> None:
    levels: list[object] = ["x"]
    for _ in range(64):
        levels = [levels, levels]
    levels.append(levels)
    read_references(levels)


def test_a_problem_with_a_changed_file_is_logged_once_and_the_previous_value_stays(
    secret: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = FileSecret("store.dsn", secret)
    secret.unlink()
    assert [found.get_secret_value() for _ in range(3)] == [KEY] * 3
    assert [record.__dict__["setting"] for record in caplog.records] == ["store.dsn"]
    secret.write_text("\n")
    assert found.get_secret_value() == KEY
    secret.write_text("canary-next\n")
    assert found.get_secret_value() == "canary-next"
    secret.chmod(0o666)
    secret.write_text("canary-of-somebody-else\n")
    assert found.get_secret_value() == "canary-next"
    assert "canary" not in caplog.text


def test_a_file_that_is_replaced_through_a_link_applies_too(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "key").write_text(f"canary-{version}")
    (tmp_path / "data").symlink_to("1")
    found = FileSecret("store.dsn", tmp_path / "data/key")
    (tmp_path / "next").symlink_to("2")
    (tmp_path / "next").rename(tmp_path / "data")
    assert revealed(found) == "canary-2"


def test_a_key_encryption_key_does_not_become_shorter_than_allowed(tmp_path: Path, secret: Path) -> None:
    file = tmp_path / "armarium.yaml"
    file.write_text(f"gateway:\n  tokens:\n    secret: ${{file:{secret}}}\n")
    found = load_settings(Settings, file).gateway.tokens.secret  # pyright: ignore[reportAttributeAccessIssue] a section
    secret.write_text("short")
    assert found.get_secret_value() == KEY
    assert "16 characters" in refusal(tmp_path, file.read_text()).message
