"""Download links: which file, for which caller and server, and until when. In memory only."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from armarium.capabilities.gateway.downloads.files import NamedFile
from armarium.foundation.security.identity import Principal

DOWNLOAD_PATH: Final = "/files/download"
"""Relative to the root of the API."""
_MAX_LINKS: Final = 10_000
_MAX_LINKS_OF_CALLER: Final = 1_000


@dataclass(frozen=True, slots=True)
class Link:
    """What a token gives access to: one file, as one caller may read it."""

    principal: Principal
    server: str
    file: NamedFile
    name: str
    """The name in the URL."""
    expires_at: float
    """In time of the monotonic clock."""


class DownloadLinks:
    """The links by the hash of their token. A restart invalidates all of them."""

    def __init__(self, *, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._links: OrderedDict[bytes, Link] = OrderedDict()
        self._transports: Mapping[str, object] = {}

    def issue(self, principal: Principal, server: str, file: NamedFile) -> str:
        """The path of a new link, relative to the root of the API."""
        self._remove(lambda link: link.expires_at <= self._clock())
        own = [key for key, link in self._links.items() if link.principal == principal]
        if len(own) >= _MAX_LINKS_OF_CALLER:
            del self._links[own[0]]
        elif len(self._links) >= _MAX_LINKS:
            self._links.popitem(last=False)
        token = secrets.token_urlsafe(32)
        # Safe in a URL, in a header, and as a file name; the extension tells a server the type.
        name = re.sub(r"[^A-Za-z0-9._-]", "_", file.name)[-100:].lstrip(".") or "file"
        self._links[_digest(token)] = Link(principal, server, file, name, self._clock() + self._ttl_s)
        return f"{DOWNLOAD_PATH}/{quote(name)}?token={token}"

    def find(self, name: str, token: str) -> Link | None:
        """The link, if it is valid."""
        link = self._links.get(_digest(token))
        return link if link is not None and link.expires_at > self._clock() and link.name == name else None

    def update_servers(self, transports: Mapping[str, object]) -> None:
        """Remove the links of servers that are gone or whose transport changed."""
        before, self._transports = self._transports, transports
        self._remove(lambda link: before.get(link.server) != transports.get(link.server))

    def _remove(self, condition: Callable[[Link], bool]) -> None:
        for key in [key for key, link in self._links.items() if condition(link)]:
            del self._links[key]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
