"""Decides which browser origins may call, and which host names are loopback addresses."""

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


def names_loopback(host: str) -> bool:
    """Whether a Host header names a loopback address."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
