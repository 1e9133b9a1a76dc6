"""The setting `network`: the hosts to which this process may connect.

The rule is one of the process, like the log level, and not a parameter: code that forgets to pass it on must not be
able to connect (decision 0078).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Literal
from urllib.parse import urlsplit

EXCLUDED = "the setting `network` excludes"

_allowed: frozenset[str] | None = None
"""The hosts besides those of this machine; None: all."""


def restrict_network(rule: Literal["on", "off"] | Iterable[str]) -> None:
    """Apply the setting to this process."""
    global _allowed
    _allowed = None if rule == "on" else frozenset() if rule == "off" else frozenset(host.lower() for host in rule)


def permits(address: str) -> bool:
    """Whether this process may connect to the host of a URL. It may always connect to this machine."""
    if _allowed is None:
        return True
    try:
        host = (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return False
    parents = host.split(".")[1:]
    names = {host, *("*." + ".".join(parents[start:]) for start in range(len(parents)))}
    return not _allowed.isdisjoint(names) or is_loopback(host)


def is_local(address: str) -> bool:
    """Whether a URL names this machine. No proxy may be asked for it: a proxy cannot reach it, and is elsewhere."""
    return is_loopback((urlsplit(address).hostname or "").rstrip("."))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
