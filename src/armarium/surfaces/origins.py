"""Which browser pages may call, and which names are this machine's own."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit


class AllowedOrigins:
    """Origins of browser pages that may call. `http://localhost:*` stands for every port, any other for itself."""

    def __init__(self, origins: Iterable[str]) -> None:
        listed = [origin.rstrip("/").lower() for origin in origins]
        self.exact = frozenset(origin for origin in listed if not origin.endswith(":*"))
        bases = [re.escape(origin.removesuffix(":*")) for origin in listed if origin.endswith(":*")]
        self.pattern = rf"({'|'.join(bases)})(:[0-9]{{1,5}})?" if bases else None
        """What those of every port look like; None if there are none."""

    def __bool__(self) -> bool:
        return bool(self.exact) or self.pattern is not None

    def allow(self, origin: str) -> bool:
        """Whether the origin, in lower case, may call."""
        return origin in self.exact or (self.pattern is not None and re.fullmatch(self.pattern, origin) is not None)


def names_loopback(host: str) -> bool:
    """Whether a Host header names a loopback address."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
