"""Applies the headers of trusted proxies: who sent a request, and whether it was encrypted on its way to the proxy."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from itertools import zip_longest

from starlette.types import ASGIApp, Receive, Scope, Send

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_PARAMETER = re.compile(r'\s*([^\s=;,"]*)\s*(?:=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;,"]*)))?\s*(;|,|\Z)')
"""A parameter of `Forwarded`, which may be quoted, and what follows it."""
_UNKNOWN = ("", "")
_ADDRESS = re.compile(
    r"\[(?P<bracketed>[0-9A-Fa-f:.]+)\](?::\d+)?|(?P<v4>\d+(?:\.\d+){3})(?::\d+)?|(?P<bare>[0-9A-Fa-f:.]+)"
)
_ENCRYPTED = {"http": "https", "ws": "wss"}


class ForwardedRequests:
    """An ASGI application that sees the client of a request in place of the proxies between them.

    Every proxy appends the address it received the request from. The client is the last address that is not a trusted
    proxy: all before it are what the client itself claims.
    """

    def __init__(self, app: ASGIApp, proxies: Sequence[IpNetwork]) -> None:
        self._app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and (peer := scope.get("client")) and self._is_proxy(parse_address(peer[0])):
            scope = self._resolved(scope)
        await self._app(scope, receive, send)

    def _resolved(self, scope: Scope) -> Scope:
        for sender, protocol in reversed(_hops(scope)):
            address = parse_address(sender)
            if address is None:
                # An obfuscated or unknown sender. It is not the proxy, and certainly not this machine.
                return {**scope, "client": None, "scheme": _scheme(scope, protocol), "is_forwarded": True}
            scope = {**scope, "client": (str(address), 0), "scheme": _scheme(scope, protocol), "is_forwarded": True}
            if not self._is_proxy(address):
                break
        return scope

    def _is_proxy(self, address: IpAddress | None) -> bool:
        return address is not None and any(address in network for network in self._proxies)


def is_clear_text(scope: Scope) -> bool:
    """Whether a request came unencrypted from another machine."""
    if scope.get("scheme") in _ENCRYPTED.values():
        return False
    client = scope.get("client")
    address = parse_address(client[0]) if client else None
    return bool(scope.get("is_forwarded")) if address is None else not address.is_loopback


def parse_address(text: str) -> IpAddress | None:
    """The address in a header or of a connection, which may come with a port."""
    match = _ADDRESS.fullmatch(text.strip())
    try:
        address = ipaddress.ip_address(match[1] or match[2] or match[3]) if match else None
    except ValueError:
        return None
    # A socket for both versions reports IPv4 addresses as mapped ones.
    return getattr(address, "ipv4_mapped", None) or address


def _hops(scope: Scope) -> list[tuple[str, str]]:
    """The sender and the protocol of each hop, the nearest last."""
    fields = {name: _list_header(scope, name) for name in (b"x-forwarded-for", b"x-forwarded-proto")}
    forwarded = [value.decode("latin-1") for name, value in scope["headers"] if name == b"forwarded"]
    if forwarded:
        # A proxy sets one of the two, and passes on the other as its client sent it.
        return [_UNKNOWN] if fields[b"x-forwarded-for"] else _forwarded_hops(", ".join(forwarded))
    senders, protocols = fields[b"x-forwarded-for"], fields[b"x-forwarded-proto"]
    # Many proxies set the protocol once, for all hops.
    aligned = protocols if len(protocols) == len(senders) else protocols[-1:] * len(senders)
    return list(zip_longest(senders, aligned, fillvalue=""))


def _forwarded_hops(text: str) -> list[tuple[str, str]]:
    """The same in a `Forwarded` header. A quoted value may have any character: a proxy repeats the Host header in one.
    If the header is malformed, nobody knows where the part of the proxy begins."""
    hops: list[dict[str, str]] = [{}]
    position = 0
    while position < len(text):
        match = _PARAMETER.match(text, position)
        if match is None:
            return [_UNKNOWN]
        name, quoted, plain, separator = match.groups()
        hops[-1].setdefault(name.lower(), quoted or plain or "")
        position = match.end()
        if separator == ",":
            hops.append({})
    return [(hop.get("for", ""), hop.get("proto", "")) for hop in hops]


def _list_header(scope: Scope, wanted: bytes) -> list[str]:
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]
    return [item.strip() for item in ",".join(values).split(",")] if values else []


def _scheme(scope: Scope, protocol: str) -> str:
    scheme: str = scope["scheme"]
    return _ENCRYPTED.get(scheme, scheme) if protocol.lower() in _ENCRYPTED.values() else scheme
