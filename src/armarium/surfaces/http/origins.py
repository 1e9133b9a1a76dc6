"""Decides which browser origins may call, and by which host names the server may be addressed."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit


class AllowedOrigins:
    """The origins of browser pages that may call. `http://localhost:*` matches every port; others match exactly."""

    def __init__(self, origins: Iterable[str]) -> None:
        listed = [origin.rstrip("/").lower() for origin in origins]
        self.exact = frozenset(origin for origin in listed if not origin.endswith(":*"))
        bases = [re.escape(origin.removesuffix(":*")) for origin in listed if origin.endswith(":*")]
        self.pattern = rf"({'|'.join(bases)})(:[0-9]{{1,5}})?" if bases else None
        """A regular expression for the origins with any port; None if there are none."""

    def __bool__(self) -> bool:
        return bool(self.exact) or self.pattern is not None

    def allow(self, origin: str) -> bool:
        """Whether the origin, in lower case, may call."""
        return origin in self.exact or (self.pattern is not None and re.fullmatch(self.pattern, origin) is not None)


class AllowedHosts:
    """The host names by which clients may address the server. Ports do not count."""

    def __init__(self, names: Iterable[str], *, loopback_only: bool) -> None:
        self._names = frozenset(_name_in(name) for name in names)
        self._all = not loopback_only and not self._names

    def names_this_server(self, host: str) -> bool:
        """Whether a Host header names this server for certain. Every name may point to its address."""
        name = _name_in(host)
        try:
            return name == "localhost" or name in self._names or ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False

    def allow(self, host: str) -> bool:
        """Whether the server answers a request with this Host header."""
        return self._all or self.names_this_server(host)


def _name_in(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return ""
