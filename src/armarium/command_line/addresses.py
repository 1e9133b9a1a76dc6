"""The addresses by which clients on this machine and on other machines reach a server."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

# Addresses reserved for documentation, so that no real host is named.
_REMOTE_HOSTS = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
_ANY_PORT = 9


def local_address(address: str) -> str:
    """The address for clients on this machine: a wildcard address becomes the loopback address."""
    return address.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:")


def remote_address(address: str) -> str:
    """The address for clients on other machines: a wildcard address becomes the outgoing address, or the host name."""
    parts = urlsplit(address)
    if parts.hostname not in ("0.0.0.0", "::"):  # noqa: S104 only compared
        return address
    host = _outgoing_address(socket.AF_INET6 if parts.hostname == "::" else socket.AF_INET) or socket.gethostname()
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{parts.port}"


def _outgoing_address(family: socket.AddressFamily) -> str | None:
    """The source address of packets to other networks. Connecting a datagram socket sends nothing."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((_REMOTE_HOSTS[family], _ANY_PORT))
            host: str = probe.getsockname()[0]
    except OSError:
        return None
    return None if ipaddress.ip_address(host).is_loopback else host
