"""`server.tls`: HTTPS, certificates that change, and warnings about clear text."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from support.certificates import write_certificate
from support.command_line import DEADLINE_S, Command, CommandLine, InThisProcess

Start = Callable[..., Command]


def write_settings(project: Path, **server: Any) -> None:
    roots = [{"name": "docs", "path": str(project), "allowed_tools": ["read_file"]}]
    settings = {"server": {"port": 0, **server}, "sandbox": {"roots": roots}}
    (project / "armarium.yaml").write_text(yaml.safe_dump(settings))


def health(address: str, certificate: bytes) -> str:
    """The health of a server that must present this certificate."""
    trusting = ssl.create_default_context(cadata=certificate.decode())
    return httpx.get(f"{address}/health", timeout=DEADLINE_S, trust_env=False, verify=trusting).text


@pytest.fixture
def certificate(project: Path, tmp_path: Path) -> tuple[Path, Path]:
    files = write_certificate(tmp_path)
    write_settings(project, tls={"certificate": str(files[0]), "key": str(files[1])})
    return files


def listening(server: Command) -> dict[str, Any]:
    return json.loads(server.stderr.until('"listening"')[-1])


def test_a_server_with_a_certificate_speaks_https_and_nothing_else(
    start: Start, certificate: tuple[Path, Path]
) -> None:
    line = listening(start("serve", "--config", "armarium.yaml"))
    assert line["url"].startswith("https://127.0.0.1:")
    assert health(line["address"], certificate[0].read_bytes()) == "ok"
    with pytest.raises(httpx.TransportError):
        httpx.get(line["address"].replace("https:", "http:") + "/health", timeout=DEADLINE_S, trust_env=False)


def test_a_renewed_certificate_applies_to_the_next_connection_and_a_damaged_one_does_not(
    start: Start, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    server = start("serve", "--config", "armarium.yaml")
    address = listening(server)["address"]
    first = certificate[0].read_bytes()
    assert health(address, first) == "ok"
    second = write_certificate(tmp_path)[0].read_bytes()
    assert health(address, second) == "ok"
    with pytest.raises(httpx.ConnectError):
        health(address, first)
    certificate[1].write_text("half a ke")
    assert health(address, second) == "ok"
    server.stderr.until("is not renewed")
    third = write_certificate(tmp_path)[0].read_bytes()
    assert health(address, third) == "ok"


def test_half_a_pair_or_an_unusable_one_ends_with_2(
    armarium: CommandLine, certificate: tuple[Path, Path], project: Path
) -> None:
    cert, key = map(str, certificate)
    for tls, code in [
        ({"certificate": cert}, "CONFIG_INVALID"),
        ({"certificate": cert, "key": cert}, "TLS_CONFIG_INVALID"),
        ({"certificate": cert, "key": key + ".missing"}, "TLS_CONFIG_INVALID"),
    ]:
        write_settings(project, tls=tls)
        outcome = armarium("serve", "--config", "armarium.yaml", "--json")
        assert (outcome.code, outcome.json["error"]["code"]) == (2, code)


@pytest.mark.parametrize(
    ("server", "warned"),
    [
        ({"host": "0.0.0.0"}, True),
        ({"host": "0.0.0.0", "trusted_proxies": ["192.0.2.1"]}, False),
        ({"host": "127.0.0.1"}, False),
    ],
)
def test_listening_in_clear_text_beyond_this_machine_is_warned_of(
    start: Start, quick: InThisProcess, project: Path, server: dict[str, Any], warned: bool
) -> None:
    write_settings(project, **server)
    lines = start("serve", "--config", "armarium.yaml").stderr.until('"listening"')
    assert any("clear text" in line for line in lines) is warned
    checks = {
        check["subject"]: check for check in quick("doctor", "--config", "armarium.yaml", "--json").json["findings"]
    }
    assert checks["encryption"]["state"] == ("warn" if warned else "ok")


def test_no_warning_with_a_certificate(start: Start, project: Path, tmp_path: Path) -> None:
    cert, key = map(str, write_certificate(tmp_path))
    write_settings(project, host="0.0.0.0", tls={"certificate": cert, "key": key})
    assert not any(
        "clear text" in line for line in start("serve", "--config", "armarium.yaml").stderr.until('"listening"')
    )
