"""How hosted models are asked: one request loop with deadlines, tries, a shared pace and bounded answers."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import orjson

from armarium.foundation.schema import Json
from armarium.providers.error_responses import refusal, refusal_in_stream
from armarium.providers.errors import ProviderError, ProviderRateLimited
from armarium.providers.retry import Pace, Patience, Timing, Tries
from armarium.providers.vendors import Vendor

if TYPE_CHECKING:
    import ssl

    import httpx2

_log = logging.getLogger(__name__)


_LONGEST_ANSWER_BYTES = 64 * 1024 * 1024
_LONGEST_REFUSAL_BYTES = 16 * 1024
_CONNECT_S = 10.0
_PARTING_S = 2.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ProviderClient:
    """Asks one vendor: all models of an account share one, and with it the account's rate.

    The key is in no representation, message or log line of it.
    """

    def __init__(
        self,
        vendor: Vendor,
        key: str | None = None,
        *,
        base_url: str | None = None,
        patience: Patience | None = None,
        concurrency: int = 4,
        requests_per_minute: float | None = None,
        longest_answer_bytes: int = _LONGEST_ANSWER_BYTES,
        timing: Timing | None = None,
    ) -> None:
        self.vendor = vendor
        self.concurrency = concurrency
        self._base_url = vendor.base_url(base_url)
        self._key = vendor.key(key)
        self._patience = patience or Patience()
        self._timing = timing or Timing()
        self._pace = Pace(requests_per_minute, self._timing)
        self._longest_answer_bytes = longest_answer_bytes
        self._slots = anyio.Semaphore(concurrency)
        # Somebody's question does not queue behind the batches of an indexing run.
        self._urgent_slots = anyio.Semaphore(concurrency)
        self._opening = anyio.Lock()
        self._client: httpx2.AsyncClient | None = None

    @property
    def host(self) -> str | None:
        """The host that is asked."""
        return urlsplit(self._base_url).hostname

    def __repr__(self) -> str:
        return f"ProviderClient({self.vendor.name!r}, key={'given' if self._key else 'none'})"

    async def post(self, path: str, body: Json, *, urgent: bool = False, deadline_s: float | None = None) -> Json:
        """Send a request and return the object it is answered with; urgent when somebody waits for it."""
        tries = Tries(self._patience, self._timing, deadline_s, urgent=urgent)
        while True:
            try:
                async with self._urgent_slots if urgent else self._slots:
                    await self._turn(tries)
                    client = await self._opened()
                    return await self._ask(client, path, body, tries.try_s)
            except ProviderError as error:
                await self._wait_or_raise(tries, error)

    async def events(
        self, path: str, body: Json, *, is_last: Callable[[Json], bool], deadline_s: float | None = None
    ) -> AsyncGenerator[Json]:
        """Send a request and yield the events of its answer; tried again only while none has come.

        A stream that ends without `[DONE]` and without an event that `is_last` was cut off, and raises.
        """
        tries = Tries(self._patience, self._timing, deadline_s, urgent=True)
        begun = False
        while True:
            try:
                async with self._urgent_slots:
                    await self._turn(tries)
                    client = await self._opened()
                    async with aclosing(self._stream(client, path, body, tries, is_last)) as events:
                        async for event in events:
                            begun = True
                            yield event
                    return
            except ProviderError as error:
                if begun:
                    raise
                await self._wait_or_raise(tries, error)

    async def aclose(self) -> None:
        """Close the connections; the client can be used again and then opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _turn(self, tries: Tries) -> None:
        # The time of a batch runs from here, not while it queues for a slot.
        tries.begin()
        wait_s = self._pace.wait_s()
        if wait_s > tries.left_s:
            raise self.vendor.rate_limited(
                f"{self.vendor.name} takes the next request later than this one can wait",
                hint="retry in a moment",
                retry_after_s=wait_s,
            )
        await self._pace.turn()

    async def _wait_or_raise(self, tries: Tries, error: ProviderError) -> None:
        wait_s = tries.wait_after(error)
        if wait_s is None:
            raise error
        if isinstance(error, ProviderRateLimited):
            self._pace.hold(wait_s)
        _log.info("a provider is asked again", extra={"code": error.code, "wait_s": round(wait_s, 3)} | error.private)
        await self._timing.sleep(wait_s)

    async def _ask(self, client: httpx2.AsyncClient, path: str, body: Json, try_s: float) -> Json:
        with self._translated(), anyio.fail_after(try_s):
            async with self._answer(client, path, body) as response:
                return self._parsed(await self._read(response, self._longest_answer_bytes))

    async def _stream(
        self, client: httpx2.AsyncClient, path: str, body: Json, tries: Tries, is_last: Callable[[Json], bool]
    ) -> AsyncGenerator[Json]:
        import httpx2

        ended = False
        received = 0
        # A deadline around the whole stream would be a cancel scope that stays open while the caller works.
        with self._translated():
            async with self._answer(client, path, body, tries.try_s) as response:
                if response.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
                    with anyio.fail_after(tries.try_s):
                        whole = await self._read(response, self._longest_answer_bytes)
                    yield self._parsed(whole)
                    return
                response.encoding = "utf-8"
                source = cast("AsyncGenerator[httpx2.ServerSentEvent]", aiter(httpx2.EventSource(response)))
                async with aclosing(source):
                    while True:
                        with anyio.fail_after(tries.try_s):
                            event = await anext(source, None)
                        if event is None or event.data == "[DONE]":
                            break
                        received += len(event.data)
                        if received > self._longest_answer_bytes:
                            raise self.vendor.unusable("it is too long")
                        parsed = self._parsed(event.data)
                        if problem := refusal_in_stream(self.vendor, parsed, key=self._key):
                            raise problem
                        ended = ended or is_last(parsed)
                        yield parsed
        if event is None and not ended:
            raise self.vendor.unavailable(f"{self.vendor.name} broke off in the middle of its answer")

    @asynccontextmanager
    async def _answer(
        self, client: httpx2.AsyncClient, path: str, body: Json, try_s: float | None = None
    ) -> AsyncGenerator[httpx2.Response]:
        """The answer once its head is there and says that the request was accepted."""
        request = client.build_request("POST", f"{self._base_url}{path}", content=orjson.dumps(body))
        with anyio.fail_after(try_s):
            response = await client.send(request, stream=True)
        try:
            if response.status_code != 200:
                with anyio.fail_after(try_s):
                    text = await self._read(response, _LONGEST_REFUSAL_BYTES, cut=True)
                raise refusal(
                    self.vendor, response.status_code, response.headers, text, key=self._key, wall=self._timing.wall()
                )
            yield response
        finally:
            with anyio.move_on_after(_PARTING_S, shield=True):
                await response.aclose()

    async def _read(self, response: httpx2.Response, limit: int, *, cut: bool = False) -> bytes:
        content = bytearray()
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > limit:
                if cut:
                    break
                raise self.vendor.unusable("it is too long")
        return bytes(content[:limit])

    def _parsed(self, text: bytes | str) -> Json:
        try:
            answer = orjson.loads(text)
        except orjson.JSONDecodeError as failure:
            # Most often a proxy's page or a body cut short; the next try may reach the vendor itself.
            raise self.vendor.unavailable(f"{self.vendor.name} gave an answer that is not JSON") from failure
        if not isinstance(answer, dict):
            raise self.vendor.unusable("it is not a JSON object")
        return cast("Json", answer)

    @contextmanager
    def _translated(self) -> Generator[None]:
        import httpx2

        try:
            yield
        except (TimeoutError, httpx2.TimeoutException) as failure:
            raise self.vendor.unavailable(f"{self.vendor.name} did not answer in time") from failure
        except httpx2.HTTPError as failure:
            # The text of these can hold addresses inside the operator's network.
            raise self.vendor.unavailable(
                f"{self.vendor.name} could not be reached, or the connection broke",
                hint="check the base URL and the network",
                private={"reason": type(failure).__name__},
            ) from failure

    async def _opened(self) -> httpx2.AsyncClient:
        import httpx2

        async with self._opening:
            if self._client is None:
                self._client = httpx2.AsyncClient(
                    headers=_headers(self._key),
                    timeout=httpx2.Timeout(self._patience.try_s, connect=min(_CONNECT_S, self._patience.try_s)),
                    limits=httpx2.Limits(max_connections=2 * self.concurrency),
                    follow_redirects=False,
                    verify=await self._certificates(),
                    # A proxy for the outside cannot reach a model on this machine.
                    trust_env=self.host not in _LOOPBACK,
                )
        return self._client

    async def _certificates(self) -> ssl.SSLContext | bool:
        import httpx2

        if self._base_url.startswith("http://"):
            return False  # nothing is encrypted there, so there is nothing to verify
        try:
            # Reading the machine's certificates takes a tenth of a second or two.
            return await anyio.to_thread.run_sync(httpx2.create_ssl_context)
        except OSError as failure:
            raise self.vendor.failed(
                "the certificates for secure connections cannot be read", hint="check SSL_CERT_FILE and SSL_CERT_DIR"
            ) from failure


def _headers(key: str | None) -> Mapping[str, str]:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    return headers | {"authorization": f"Bearer {key}"} if key else headers
