"""Where a server that listens on every address is reached."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from armarium.command_line.addresses import reached_from_elsewhere, reached_from_here


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("http://0.0.0.0:80", "http://127.0.0.1:80"),
        ("https://[::]:80", "https://[::1]:80"),
        ("http://10.0.0.1:80", "http://10.0.0.1:80"),
    ],
)
def test_a_server_on_every_address_is_reached_on_loopback_from_here(address: str, here: str) -> None:
    assert reached_from_here(address) == here


@pytest.mark.parametrize("address", ["http://127.0.0.1:8087", "https://[::1]:8087", "http://docs.example:8087"])
def test_a_server_on_one_address_is_reached_there_by_everybody(address: str) -> None:
    assert reached_from_elsewhere(address) == reached_from_here(address) == address


class Way:
    """A datagram socket of a machine with this address, or with no way out."""

    def __init__(self, host: str | None) -> None:
        self._host = host

    def __enter__(self) -> Way:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def connect(self, address: tuple[Any, ...]) -> None:
        assert ipaddress.ip_address(address[0]).is_private, "an address for documentation"
        if self._host is None:
            raise OSError(101, "Network is unreachable")

    def getsockname(self) -> tuple[str | None, int]:
        return self._host, 40000


@pytest.mark.parametrize(
    ("listening", "own", "expected"),
    [
        ("http://0.0.0.0:8087", "198.51.100.7", "http://198.51.100.7:8087"),
        ("https://[::]:8087", "2001:db8::7", "https://[2001:db8::7]:8087"),
        ("http://0.0.0.0:8087", "127.0.0.1", "http://reading-room:8087"),
        ("http://0.0.0.0:8087", None, "http://reading-room:8087"),
    ],
)
def test_others_are_told_the_address_of_the_way_out_or_the_name_of_the_machine(
    listening: str, own: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "socket", lambda *_: Way(own))
    monkeypatch.setattr(socket, "gethostname", lambda: "reading-room")
    assert reached_from_elsewhere(listening) == expected


def test_this_very_machine_has_an_address_for_others_too() -> None:
    host = urlsplit(reached_from_elsewhere("http://0.0.0.0:8087")).hostname
    assert host not in (None, "0.0.0.0", "127.0.0.1")
