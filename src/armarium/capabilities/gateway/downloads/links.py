"""Download links: which file, for which caller and server, and until when. In memory only."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from armarium.capabilities.gateway.downloads.files import NamedFile
from armarium.foundation.security.identity import Principal
from armarium.foundation.security.issued_secrets import IssuedSecrets

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


class DownloadLinks:
    """The links by their token. A restart invalidates all of them."""

    def __init__(self, *, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._links = IssuedSecrets[Link](ttl_s, most=_MAX_LINKS, most_of_caller=_MAX_LINKS_OF_CALLER, clock=clock)
        self._transports: Mapping[str, object] = {}

    def issue(self, principal: Principal, server: str, file: NamedFile) -> str:
        """The path of a new link, relative to the root of the API."""
        # Safe in a URL, in a header, and as a file name; the extension tells a server the type.
        name = re.sub(r"[^A-Za-z0-9._-]", "_", file.name)[-100:].lstrip(".") or "file"
        token, _ = self._links.issue(principal, Link(principal, server, file, name))
        return f"{DOWNLOAD_PATH}/{quote(name)}?token={token}"

    def find(self, name: str, token: str) -> Link | None:
        """The link, if it is valid."""
        link = self._links.find(token)
        return link if link is not None and link.name == name else None

    def update_servers(self, transports: Mapping[str, object]) -> None:
        """Remove the links of servers that are gone or whose transport changed."""
        before, self._transports = self._transports, transports
        self._links.revoke(lambda link: before.get(link.server) != transports.get(link.server))
