"""Where a server that listens on every address is reached: from this machine, and from another one."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

# Addresses for documentation, which nobody has.
_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
_ANY_PORT = 9


def reached_from_here(address: str) -> str:
    """The address for programs on this machine."""
    return address.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:")


def reached_from_elsewhere(address: str) -> str:
    """The address for other machines: that of the way out of this one, or else its name."""
    parts = urlsplit(address)
    if parts.hostname not in ("0.0.0.0", "::"):  # noqa: S104 compared with, not listened on
        return address
    host = _outgoing_address(socket.AF_INET6 if parts.hostname == "::" else socket.AF_INET) or socket.gethostname()
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{parts.port}"


def _outgoing_address(family: socket.AddressFamily) -> str | None:
    """What this machine would send from. A datagram socket that is connected sends nothing yet."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((_ELSEWHERE[family], _ANY_PORT))
            host: str = probe.getsockname()[0]
    except OSError:
        return None
    return None if ipaddress.ip_address(host).is_loopback else host
