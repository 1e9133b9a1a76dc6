"""HTTP client of a provider: deadlines, retries, a shared rate limit and bounded responses."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import orjson
from pydantic import SecretStr

from armarium.foundation.schema import Json
from armarium.foundation.security.network import EXCLUDED, is_local, permits
from armarium.foundation.settings.file_secrets import revealed
from armarium.providers.error_responses import error_from_event, error_from_response
from armarium.providers.errors import ProviderError, ProviderRateLimited
from armarium.providers.retry import Attempts, Clock, RateLimiter, RetryPolicy
from armarium.providers.vendors import Vendor

if TYPE_CHECKING:
    import ssl

    import httpx2

_log = logging.getLogger(__name__)

_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_MAX_ERROR_BYTES = 16 * 1024
_CONNECT_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 2.0
_HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


class ProviderClient:
    """Sends requests to one provider. All models of an account share a client, and with it the account's rate limit.
    The API key is read for each request, and appears in no representation, error message or log record."""

    def __init__(
        self,
        vendor: Vendor,
        key: SecretStr | str | None = None,
        *,
        base_url: str | None = None,
        retry_policy: RetryPolicy | None = None,
        concurrency: int = 4,
        requests_per_minute: float | None = None,
        max_response_bytes: int = _MAX_RESPONSE_BYTES,
        clock: Clock | None = None,
    ) -> None:
        self.vendor = vendor
        self.concurrency = concurrency
        self._base_url = vendor.base_url(base_url)
        self._secret = key
        self._retry_policy = retry_policy or RetryPolicy()
        self._clock = clock or Clock()
        self._rate_limiter = RateLimiter(requests_per_minute, self._clock)
        self._max_response_bytes = max_response_bytes
        self._slots = anyio.Semaphore(concurrency)
        # A query does not queue behind the batches of an indexing run.
        self._urgent_slots = anyio.Semaphore(concurrency)
        self._client_lock = anyio.Lock()
        self._client: httpx2.AsyncClient | None = None
        # An invalid key is reported at the start, not by the first request.
        self._key()

    def __repr__(self) -> str:
        return f"ProviderClient({self.vendor.name!r}, key={'given' if self._key() else 'none'})"

    async def post(self, path: str, body: Json, *, urgent: bool = False, deadline_s: float | None = None) -> Json:
        """Send a request and return the JSON object of the response. `urgent`: a caller waits for it."""
        attempts = Attempts(self._retry_policy, self._clock, deadline_s, urgent=urgent)
        while True:
            try:
                async with self._urgent_slots if urgent else self._slots:
                    client = await self._start(attempts)
                    with self._translated(), anyio.fail_after(attempts.timeout_s):
                        async with self._response(client, path, body) as response:
                            return self._parsed(await self._read(response, self._max_response_bytes))
            except ProviderError as error:
                await self._wait_or_raise(attempts, error)

    async def events(self, path: str, body: Json, *, is_last: Callable[[Json], bool]) -> AsyncGenerator[Json]:
        """Send a request and yield the events of the response. It is retried only before the first event. Raises when
        the stream ends early: without `[DONE]` and without an event that `is_last`."""
        attempts = Attempts(self._retry_policy, self._clock, urgent=True)
        started = False
        while True:
            try:
                async with self._urgent_slots:
                    client = await self._start(attempts)
                    async with aclosing(self._stream(client, path, body, attempts, is_last)) as events:
                        async for event in events:
                            started = True
                            yield event
                    return
            except ProviderError as error:
                if started:
                    raise
                await self._wait_or_raise(attempts, error)

    def _key(self) -> str | None:
        return self.vendor.key(revealed(self._secret))

    async def aclose(self) -> None:
        """Close the connections. The next request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _start(self, attempts: Attempts) -> httpx2.AsyncClient:
        if not permits(self._base_url):
            host = urlsplit(self._base_url).hostname
            raise self.vendor.failed(f"{EXCLUDED} {host}", hint="set `network: on`, or add the host to the list")
        # The deadline of a batch starts here, not while it queues for a slot.
        attempts.start()
        if (delay_s := self._rate_limiter.delay_s()) > attempts.remaining_s:
            raise self.vendor.rate_limited(
                f"the rate limit of {self.vendor.name} delays the request beyond its deadline",
                hint="retry in a moment",
                retry_after_s=delay_s,
            )
        await self._rate_limiter.acquire()
        return await self._http_client()

    async def _wait_or_raise(self, attempts: Attempts, error: ProviderError) -> None:
        if (delay_s := attempts.delay_after(error)) is None:
            raise error
        if isinstance(error, ProviderRateLimited):
            self._rate_limiter.pause(delay_s)
        _log.info(
            "retrying a provider request", extra={"code": error.code, "wait_s": round(delay_s, 3)} | error.private
        )
        await self._clock.sleep(delay_s)

    async def _stream(
        self, client: httpx2.AsyncClient, path: str, body: Json, attempts: Attempts, is_last: Callable[[Json], bool]
    ) -> AsyncGenerator[Json]:
        import httpx2

        ended = False
        received = 0
        # A timeout around the whole stream would be a cancel scope that stays open while the caller works.
        with self._translated():
            async with self._response(client, path, body, attempts.timeout_s) as response:
                if response.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
                    with anyio.fail_after(attempts.timeout_s):
                        content = await self._read(response, self._max_response_bytes)
                    yield self._parsed(content)
                    return
                response.encoding = "utf-8"
                source = cast("AsyncGenerator[httpx2.ServerSentEvent]", aiter(httpx2.EventSource(response)))
                async with aclosing(source):
                    while True:
                        with anyio.fail_after(attempts.timeout_s):
                            event = await anext(source, None)
                        if event is None or event.data == "[DONE]":
                            break
                        received += len(event.data)
                        if received > self._max_response_bytes:
                            raise self.vendor.unusable("it is too long")
                        parsed = self._parsed(event.data)
                        if error := error_from_event(self.vendor, parsed, key=self._key()):
                            raise error
                        ended = ended or is_last(parsed)
                        yield parsed
        if event is None and not ended:
            raise self.vendor.unavailable(f"{self.vendor.name} closed the connection in the middle of its response")

    @asynccontextmanager
    async def _response(
        self, client: httpx2.AsyncClient, path: str, body: Json, timeout_s: float | None = None
    ) -> AsyncGenerator[httpx2.Response]:
        """The response, once its status says that the request was accepted."""
        key = self._key()
        headers = {"authorization": f"Bearer {key}"} if key else {}
        request = client.build_request("POST", f"{self._base_url}{path}", content=orjson.dumps(body), headers=headers)
        with anyio.fail_after(timeout_s):
            response = await client.send(request, stream=True)
        try:
            if response.status_code != 200:
                with anyio.fail_after(timeout_s):
                    text = await self._read(response, _MAX_ERROR_BYTES, truncate=True)
                raise error_from_response(
                    self.vendor, response.status_code, response.headers, text, key=key, wall=self._clock.wall()
                )
            yield response
        finally:
            with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
                await response.aclose()

    async def _read(self, response: httpx2.Response, limit: int, *, truncate: bool = False) -> bytes:
        content = bytearray()
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > limit:
                if truncate:
                    break
                raise self.vendor.unusable("it is too long")
        return bytes(content[:limit])

    def _parsed(self, text: bytes | str) -> Json:
        try:
            parsed = orjson.loads(text)
        except orjson.JSONDecodeError as failure:
            # Most often a proxy's error page or a truncated body; the next attempt may reach the provider.
            raise self.vendor.unavailable(f"{self.vendor.name} sent a response that is not JSON") from failure
        if not isinstance(parsed, dict):
            raise self.vendor.unusable("it is not a JSON object")
        return cast("Json", parsed)

    @contextmanager
    def _translated(self) -> Generator[None]:
        import httpx2

        try:
            yield
        except (TimeoutError, httpx2.TimeoutException) as failure:
            raise self.vendor.unavailable(f"{self.vendor.name} timed out") from failure
        except httpx2.HTTPError as failure:
            # The text of these errors can contain addresses of the operator's network.
            raise self.vendor.unavailable(
                f"{self.vendor.name} is unreachable, or the connection failed",
                hint="check the base URL and the network",
                private={"reason": type(failure).__name__},
            ) from failure

    async def _http_client(self) -> httpx2.AsyncClient:
        import httpx2

        timeout_s = self._retry_policy.attempt_timeout_s
        async with self._client_lock:
            if self._client is None:
                self._client = httpx2.AsyncClient(
                    headers=_HEADERS,
                    timeout=httpx2.Timeout(timeout_s, connect=min(_CONNECT_TIMEOUT_S, timeout_s)),
                    limits=httpx2.Limits(max_connections=2 * self.concurrency),
                    follow_redirects=False,
                    verify=await self._certificates(),
                    trust_env=not is_local(self._base_url),
                )
        return self._client

    async def _certificates(self) -> ssl.SSLContext | bool:
        import httpx2

        if self._base_url.startswith("http://"):
            return False  # no TLS, so no certificate to verify
        try:
            # Reading the system's certificates takes 0.1 to 0.2 s.
            return await anyio.to_thread.run_sync(httpx2.create_ssl_context)
        except OSError as failure:
            raise self.vendor.failed(
                "the TLS certificates of this machine cannot be read", hint="check SSL_CERT_FILE and SSL_CERT_DIR"
            ) from failure
