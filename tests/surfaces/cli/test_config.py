"""`armarium config print` prints the settings in effect as a valid settings file."""

from __future__ import annotations

from pathlib import Path

import yaml

from support.command_line import CommandLine, InThisProcess

SETTINGS = """
server: {port: 9000}
security:
  auth: keys
  keys: [{username: alice, groups: [staff], key_sha256: "%s"}]
sessions: {inactivity_timeout: 90m, max_lifetime: 7d}
telemetry: {otlp_endpoint: "http://me:s3cret@collector.example/v1/traces"}
sandbox:
  roots: [{name: docs, path: /srv/docs, allowed_tools: [read_file], ignore: ["*.key"]}]
""" % ("ab" * 32)


def test_all_defaults_are_printed_and_durations_are_readable(armarium: CommandLine, home: Path) -> None:
    printed = yaml.safe_load(armarium("config", "print").stdout)
    assert printed["server"]["port"] == 8091
    assert printed["sessions"]["inactivity_timeout"] == "24h"
    assert printed["sessions"]["max_lifetime"] == "off"
    assert printed["state_dir"] == str(home / "state" / "armarium")


def test_the_output_is_a_valid_settings_file_that_prints_the_same(armarium: CommandLine, project: Path) -> None:
    (project / "armarium.yaml").write_text(SETTINGS)
    first = armarium("config", "print").stdout
    (project / "again.yaml").write_text(first)
    again = armarium("config", "print", "--config", "again.yaml", XDG_STATE_HOME="/elsewhere")
    assert again.code == 0
    assert again.stdout == first
    printed = yaml.safe_load(first)
    assert {"inactivity_timeout": "90m", "max_lifetime": "7d"}.items() <= printed["sessions"].items()
    assert printed["security"]["keys"][0]["key_sha256"] == "ab" * 32


def test_file_and_environment_are_merged(quick: InThisProcess, project: Path) -> None:
    (project / "armarium.yaml").write_text(SETTINGS)
    printed = quick("config", "print", "--json", ARMARIUM_SERVER__PORT="9001").json
    assert printed["server"]["port"] == 9001
    assert printed["sandbox"]["roots"][0]["name"] == "docs"


def test_secrets_are_not_printed(quick: InThisProcess, project: Path, home: Path) -> None:
    (project / "armarium.yaml").write_text(SETTINGS)
    outcome = quick("config", "print")
    assert "s3cret" not in outcome.stdout
    assert "http://***@collector.example/v1/traces" in outcome.stdout
    assert not (home / "state").exists()


def test_the_settings_of_a_directory_are_printed(quick: InThisProcess, project: Path) -> None:
    (project / "armarium.yaml").write_text("")  # As the shell leaves it when the output goes there.
    (root,) = quick("config", "print", "--dir", ".", "--write", "--json").json["sandbox"]["roots"]
    assert (root["path"], root["read_only"]) == (str(project), False)


def test_a_directory_and_a_file_exclude_each_other(quick: InThisProcess, project: Path) -> None:
    outcome = quick("config", "print", "--dir", ".", "--config", "armarium.yaml", "--json")
    assert outcome.code == 2
    assert outcome.json["error"]["code"] == "USAGE"
