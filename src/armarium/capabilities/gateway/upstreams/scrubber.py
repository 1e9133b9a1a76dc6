"""Removes secrets from everything a server sends: its configured keys and the tokens of calls in flight."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from armarium.capabilities.gateway.config.files import HttpTransport, ServerSpec, StdioTransport
from armarium.capabilities.gateway.secret_parameters import MIN_MASKED_LENGTH, SECRET_NAME, scrub, secrets_in
from armarium.foundation.tools import Relayed

_LONG_WORD = re.compile(r"[^\s/]{8,}")
"""Neither a path nor an address, and too long to be a part of other content by chance."""


class Scrubber:
    """The secrets of one server."""

    def __init__(self, spec: ServerSpec) -> None:
        self._kind = spec.kind
        # Shorter values are switches such as `1` or `yes`, not keys.
        named = _configured(spec)
        self._configured = {word for word in _words(named.values()) if len(word) >= MIN_MASKED_LENGTH}
        keys = _words(value for name, value in named.items() if SECRET_NAME.search(name))
        self._keys = {word for word in keys if _LONG_WORD.fullmatch(word)}
        """Those that are certainly not a word of an ordinary result."""
        self._in_flight: Counter[str] = Counter()

    @contextmanager
    def hold(self, arguments: Mapping[str, Any]) -> Generator[None]:
        """Treat the tokens of a call as secrets while the block runs."""
        tokens = list(_words(secrets_in(arguments).values()))
        self._in_flight.update(tokens)
        try:
            yield
        finally:
            self._in_flight.subtract(tokens)
            for token in tokens:
                if self._in_flight[token] <= 0:
                    del self._in_flight[token]

    def scrub(self, value: Any) -> Any:
        """A text or any JSON value without the secrets known now."""
        return scrub(value, self._configured | set(self._in_flight))

    def scrub_result(self, result: Relayed, arguments: Mapping[str, Any]) -> Relayed:
        """The result of a call without secrets. An error is scrubbed of all secrets, since servers quote what they
        reject. A result is scrubbed of the secrets in the call's arguments and of the server's configured keys; that of
        a generic server only of long ones, since a short one may be a part of any content."""
        if result.is_error:
            return replace(result, structured=self.scrub(result.structured), content=self.scrub(result.content))
        secrets = self._sent(arguments)
        if not secrets:
            return result
        return replace(result, structured=scrub(result.structured, secrets), content=scrub(result.content, secrets))

    def scrub_progress(self, message: str | None, arguments: Mapping[str, Any]) -> str | None:
        """A progress message of a call, scrubbed like its result."""
        return scrub(message, self._sent(arguments))

    def _sent(self, arguments: Mapping[str, Any]) -> set[str]:
        given = secrets_in(arguments).values()
        if self._kind == "rag":
            return {*given, *self._keys}
        return {word for word in _words(given) if _LONG_WORD.fullmatch(word)} | self._keys


def _configured(spec: ServerSpec) -> Mapping[str, str]:
    match spec.transport:
        case StdioTransport(env=env):
            return env
        case HttpTransport(headers=headers):
            return headers
        case None:
            return {}


def _words(values: Iterable[str]) -> Iterable[str]:
    """Each value and each of its words: servers usually quote `Bearer KEY` without `Bearer`."""
    for value in values:
        yield from (value, *value.split())
