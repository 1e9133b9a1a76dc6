"""Follows redirects of an upstream within its own origin, with the method and body of the request."""

from __future__ import annotations

from dataclasses import dataclass

import httpx2

MAX_REDIRECTS = 5
_FOLLOWED = frozenset({301, 302, 307, 308})


class RedirectRefused(httpx2.TransportError):
    """A redirect that is not followed."""


@dataclass(frozen=True, slots=True)
class SameOriginRedirects(httpx2.AsyncBaseTransport):
    """Raises `RedirectRefused` for a redirect to another origin: it would carry the headers of the server's entry, and
    the tokens of callers, to a server that the operator has not named. HTTPS instead of HTTP is another origin, since
    certificates are not checked for an address with HTTP."""

    wire: httpx2.AsyncBaseTransport

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        for _ in range(MAX_REDIRECTS + 1):
            response = await self.wire.handle_async_request(request)
            if not response.has_redirect_location:
                return response
            await response.aclose()
            # A browser would repeat a POST as a GET after 301 or 302, which would lose the message.
            request = httpx2.Request(
                request.method,
                _target(request, response),
                headers=request.headers,
                content=request.content or None,
                extensions=request.extensions,
            )
        raise RedirectRefused("it redirects too often")

    async def aclose(self) -> None:
        await self.wire.aclose()


def _target(request: httpx2.Request, response: httpx2.Response) -> httpx2.URL:
    """Where the request is repeated."""
    try:
        target = request.url.join(response.headers["location"])
    except httpx2.InvalidURL:
        raise RedirectRefused("it redirects to an invalid address") from None
    same = (target.scheme, target.host, target.port) == (request.url.scheme, request.url.host, request.url.port)
    if response.status_code not in _FOLLOWED or not same or target.userinfo:
        raise RedirectRefused("it redirects to another address")
    return target
