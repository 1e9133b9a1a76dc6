"""The values that must not be read in anything a server says: its keys, and the tokens of calls in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from armarium.capabilities.gateway.config.files import HttpTransport, ServerSpec, StdioTransport
from armarium.capabilities.gateway.secret_parameters import SHORTEST_KEY, scrubbed, secrets_in


class Scrubber:
    """What to mask of one server's words."""

    def __init__(self, spec: ServerSpec) -> None:
        # Those of a few letters are switches such as `1` or `yes`, and no keys.
        self._standing = {word for word in _words(_configured(spec)) if len(word) >= SHORTEST_KEY}
        self._in_flight: Counter[str] = Counter()

    @contextmanager
    def held(self, arguments: Mapping[str, Any]) -> Generator[None]:
        """Mask the call's tokens while it lasts."""
        tokens = list(_words(secrets_in(arguments).values()))
        self._in_flight.update(tokens)
        try:
            yield
        finally:
            self._in_flight.subtract(tokens)
            for token in tokens:
                if self._in_flight[token] <= 0:
                    del self._in_flight[token]

    def scrubbed(self, said: Any) -> Any:
        """What the server said, a text or any JSON, without any of them."""
        return scrubbed(said, self._standing | set(self._in_flight))


def _configured(spec: ServerSpec) -> Iterable[str]:
    match spec.transport:
        case StdioTransport(env=env):
            return env.values()
        case HttpTransport(headers=headers):
            return headers.values()
        case None:
            return ()


def _words(values: Iterable[str]) -> Iterable[str]:
    """Each value and each word of it: `Bearer KEY` is mostly repeated without `Bearer`."""
    for value in values:
        yield from (value, *value.split())
