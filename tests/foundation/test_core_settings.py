"""Settings: their sources, their precedence, and error messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import Field, model_validator

from armarium.foundation.errors import ConfigError
from armarium.foundation.settings.loader import load_settings, read_yaml
from armarium.foundation.settings.model import CoreSettings, Section, SessionSettings


class Colours(Section):
    """A section of a made-up capability."""

    wall: str = "white"
    shades: tuple[Colours.Shade, ...] = ()

    class Shade(Section):
        """One of a list."""

        name: str
        depth: int = 1


class Ledger(Section):
    """A section that only its file may fill."""

    from_file_only: ClassVar[bool] = True
    known_as: ClassVar[Mapping[str, str]] = {"books.ledger": "", "books.pens": "pens"}
    ink: str = "blue"
    pens: dict[str, int] = Field(default_factory=dict)
    pages: Ledger.Pages | None = None

    class Pages(Section):
        """A section in it."""

        known_as: ClassVar[Mapping[str, str]] = {}
        first: int = 1

        @model_validator(mode="after")
        def _not_the_thirteenth(self) -> Ledger.Pages:
            if self.first == 13:
                raise ValueError("no page thirteen")
            return self


class Settings(CoreSettings):
    """The core's settings and two more sections."""

    colours: Colours | None = None
    ledger: Ledger | None = None


def loaded(yaml: str = "", tmp_path: Path | None = None, **sources: Any) -> Settings:
    file = None
    if tmp_path is not None:
        file = tmp_path / "armarium.yaml"
        file.write_text(yaml)
    return load_settings(Settings, file, **sources)


def complaint(**sources: Any) -> ConfigError:
    with pytest.raises(ConfigError) as mistake:
        loaded(**sources)
    assert mistake.value.code == "CONFIG_INVALID"
    return mistake.value


@pytest.mark.parametrize(
    "yaml",
    [
        "books: {ledger: {ink: red, pages: {first: 2}}, pens: {1: 3}}",
        "books.ledger: {ink: red, pages: {first: 2}}\nbooks.pens: {1: 3}",
        "{books.ledger.ink: red, books.pens.1: 3, ledger: {pages: {first: 2}}}",
    ],
)
def test_a_section_may_have_the_names_of_other_documents(tmp_path: Path, yaml: str) -> None:
    settings = loaded(yaml, tmp_path)
    assert settings.ledger == Ledger(ink="red", pages=Ledger.Pages(first=2), pens={"1": 3})
    assert settings.renamed.items() >= {"books.ledger.ink": "ledger.ink", "books.pens.1": "ledger.pens.1"}.items()


def test_an_empty_section_under_another_name_says_nothing(tmp_path: Path) -> None:
    settings = loaded("books: {ledger: }", tmp_path)
    assert settings.ledger is None
    assert settings.renamed == {}


@pytest.mark.parametrize("setting", ["metrics_groups", "audit_groups"])
def test_no_groups_at_all_is_an_error_because_it_could_mean_everybody(setting: str) -> None:
    assert "at least 1" in complaint(flags={f"security.{setting}": []}).message


def test_without_a_file_everything_has_its_default() -> None:
    settings = loaded()
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8091)
    assert settings.security.auth == "auto"
    assert settings.sessions.inactivity_timeout == 24 * 3600
    assert settings.sessions.max_lifetime is None
    assert settings.colours is None


def test_flags_win_over_the_environment_which_wins_over_the_file_which_wins_over_defaults(tmp_path: Path) -> None:
    yaml = "server: {host: 127.0.0.2, port: 1, max_body_bytes: 10}"
    environ = {"ARMARIUM_SERVER__PORT": "2", "ARMARIUM_SERVER__MAX_BODY_BYTES": "20"}
    settings = loaded(yaml, tmp_path, environ=environ, flags={"server.port": 3, "server.host": None})
    assert settings.server.port == 3
    assert settings.server.max_body_bytes == 20
    assert settings.server.host == "127.0.0.2", "a flag that was not given says nothing"


def test_the_environment_speaks_yaml_and_reaches_new_sections() -> None:
    environ = {
        "ARMARIUM_SERVER__ALLOWED_ORIGINS": "[https://a.example, https://b.example]",
        "ARMARIUM_COLOURS__WALL": "blue",
        "ARMARIUM_STATE_DIR": "/somewhere",
        "ARMARIUM_TOKEN": "not a setting",
        "OTHER_SERVER__PORT": "7",
    }
    settings = loaded(environ=environ)
    assert settings.server.allowed_origins == ("https://a.example", "https://b.example")
    assert settings.colours == Colours(wall="blue")
    assert settings.state_path() == Path("/somewhere")


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90s", 90), ("30m", 1800), ("24h", 86400), ("7d", 604800), ("1.5h", 5400), (45, 45), (" 2 m ", 120)],
)
def test_durations_are_written_with_a_unit(written: object, seconds: float) -> None:
    assert SessionSettings(inactivity_timeout=written).inactivity_timeout == seconds


@pytest.mark.parametrize("off", ["off", False, None])
def test_a_duration_may_be_off(off: object) -> None:
    assert SessionSettings(inactivity_timeout=off).inactivity_timeout is None


@pytest.mark.parametrize("wrong", ["soon", "-5s", 0, -1, "5 weeks", "", []])
def test_what_is_no_duration_is_refused_with_the_name_of_the_setting(wrong: object) -> None:
    mistake = complaint(flags={"sessions.inactivity_timeout": wrong})
    assert "`sessions.inactivity_timeout" in mistake.message


@pytest.mark.parametrize(
    ("seconds", "written"), [(86400, "24h"), (5400, "90m"), (90, "90s"), (0.25, "0.25s"), (None, "off")]
)
def test_durations_are_written_back_as_a_person_would(seconds: float | None, written: str) -> None:
    assert SessionSettings(inactivity_timeout=seconds).model_dump(mode="json")["inactivity_timeout"] == written


@pytest.mark.parametrize(
    ("yaml", "message", "hint"),
    [
        ("servr: {}", "unknown setting `servr`", "did you mean `server`?"),
        ("server: {prot: 1}", "unknown setting `server.prot`", "did you mean `port`?"),
        ("colours: {wal: red}", "unknown setting `colours.wal`", "did you mean `wall`?"),
        ("colours: {shades: [{nam: x}]}", "`colours.shades.0.name` is required", None),
        ("colours: {shades: [{name: x, dept: 1}]}", "unknown setting `colours.shades.0.dept`", "did you mean `depth`?"),
        ("books: {shelf: 1}", "unknown setting `books.shelf`", "known here: books.ledger, books.pens"),
        ("books: {ledger: {inc: red}}", "unknown setting `books.ledger.inc`", "did you mean `ink`?"),
        ("books: {ledger: {ink: [1]}}", "`books.ledger.ink`: Input should be a valid string", None),
        ("books.pens.blue: much", "`books.pens.blue`: Input should be a valid integer", None),
        ("books: {ledger: {pages: {first: 13}}}", "`books.ledger.pages`: no page thirteen", None),
        ("books: {ledger: 5}", "`books.ledger`", None),
        ("books: 5", "`books` is a section", None),
        (
            "{ledger: {ink: red}, books: {ledger: {ink: blue}}}",
            "`ledger.ink` and `books.ledger.ink` are",
            "remove one of them",
        ),
        ("{ledger: {inc: red}, books: {pens: {a: 1}}}", "unknown setting `ledger.inc`", "did you mean `ink`?"),
        ("audit: {zzz: 1}", "unknown setting `audit.zzz`", "known here: file, enabled, retention_days"),
        ("server: {port: 70000}", "`server.port`: Input should be less than or equal to 65535", None),
        ("server: {port: many}", "`server.port`: Input should be a valid integer", None),
        ("security: {auth: sometimes}", "`security.auth`", None),
        ("security: {keys: [{username: ada}]}", "`security.keys.0.key_sha256` is required", None),
        ("security: {keys: [{username: '', key_sha256: x}]}", "`security.keys.0.username`", None),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_may_have_been_meant(
    tmp_path: Path, yaml: str, message: str, hint: str | None
) -> None:
    mistake = complaint(yaml=yaml, tmp_path=tmp_path)
    assert message in mistake.message
    assert str(tmp_path / "armarium.yaml") in mistake.message
    assert mistake.hint == hint


def test_a_value_where_a_section_belongs_is_refused() -> None:
    mistake = complaint(environ={"ARMARIUM_STATE_DIR": "/s", "ARMARIUM_STATE_DIR__DEEPER": "1"})
    assert "`state_dir` is not a section" in mistake.message


def test_an_environment_variable_that_is_no_yaml_is_named() -> None:
    assert "ARMARIUM_SERVER__PORT" in complaint(environ={"ARMARIUM_SERVER__PORT": "[1"}).message


@pytest.mark.parametrize(("content", "says"), [("[1, 2]", "mapping"), ("just text", "mapping"), ("{", "YAML")])
def test_a_file_that_holds_no_settings_is_refused(tmp_path: Path, content: str, says: str) -> None:
    assert says in complaint(yaml=content, tmp_path=tmp_path).message


def test_a_file_that_is_not_there_is_named_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml") as mistake:
        read_yaml(tmp_path / "missing.yaml")
    assert mistake.value.hint


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    assert loaded("# nothing yet\n", tmp_path).model_dump() == Settings().model_dump()


def test_settings_do_not_change_once_they_are_read() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().server.port = 1


def test_state_lives_where_the_settings_say_or_else_where_the_desktop_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert loaded().state_path() == tmp_path / ".local/state/armarium"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert loaded().state_path() == tmp_path / "xdg/armarium"
    assert loaded(flags={"state_dir": "~/mine"}).state_path() == tmp_path / "mine"
    assert loaded().audit_file() == tmp_path / "xdg/armarium/audit.sqlite"
    assert loaded(flags={"audit.file": "~/trail.db"}).audit_file() == tmp_path / "trail.db"


def test_a_section_may_refuse_the_environment_but_not_its_file(tmp_path: Path) -> None:
    assert loaded("ledger: {ink: red}", tmp_path).ledger == Ledger(ink="red")
    for variable in ("ARMARIUM_LEDGER__INK", "ARMARIUM_LEDGER"):
        mistake = complaint(environ={variable: "red"})
        assert "cannot be set from the environment" in mistake.message


def test_a_section_with_nothing_below_its_name_has_its_defaults(tmp_path: Path) -> None:
    settings = loaded("server:\n  # port: 1\ncolours: {shades: []}\nledger:\n", tmp_path)
    assert settings.server == CoreSettings().server
    assert settings.colours == Colours()
    assert settings.ledger is None, "a capability that nothing is said about is not wanted"
