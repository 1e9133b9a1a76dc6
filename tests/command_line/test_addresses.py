"""The addresses of a server for local and for remote clients."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from armarium.command_line.addresses import local_address, remote_address


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("http://0.0.0.0:80", "http://127.0.0.1:80"),
        ("https://[::]:80", "https://[::1]:80"),
        ("http://10.0.0.1:80", "http://10.0.0.1:80"),
    ],
)
def test_the_local_address_of_a_wildcard_address_is_the_loopback_address(address: str, local: str) -> None:
    assert local_address(address) == local


@pytest.mark.parametrize("address", ["http://127.0.0.1:8087", "https://[::1]:8087", "http://docs.example:8087"])
def test_a_specific_address_is_the_same_for_all_clients(address: str) -> None:
    assert remote_address(address) == local_address(address) == address


class DatagramSocket:
    """A datagram socket of a machine with this outgoing address, or without a network."""

    def __init__(self, host: str | None) -> None:
        self._host = host

    def __enter__(self) -> DatagramSocket:
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
def test_the_remote_address_is_the_outgoing_address_or_the_host_name(
    listening: str, own: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "socket", lambda *_: DatagramSocket(own))
    monkeypatch.setattr(socket, "gethostname", lambda: "reading-room")
    assert remote_address(listening) == expected


def test_this_machine_has_a_remote_address() -> None:
    host = urlsplit(remote_address("http://0.0.0.0:8087")).hostname
    assert host not in (None, "0.0.0.0", "127.0.0.1")
