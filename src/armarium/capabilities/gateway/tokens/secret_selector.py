"""Selects the secrets for a request to a server: given in the call, lent by the caller, or issued by the gateway."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager
from typing import Final

from armarium.capabilities.gateway.config.entries import OPEN_MODES
from armarium.capabilities.gateway.config.files import BUILT_IN_SERVER
from armarium.capabilities.gateway.errors import TokenExpired
from armarium.capabilities.gateway.model import Resource, Secrets
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityTokens
from armarium.capabilities.gateway.tokens.lent_tokens import LentTokens
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.security.identity import Principal
from armarium.foundation.tools import Call

_PARAMETER: Final = "capability_token"

CacheOwner = tuple[Principal, str | None]
"""The caller and, if it has a token of its own, the session."""


class SecretSelector:
    """Selects secrets of callers, each for one server only."""

    def __init__(self, lent_tokens: LentTokens, capability_tokens: CapabilityTokens) -> None:
        self._lent_tokens = lent_tokens
        self._capability_tokens = capability_tokens

    @contextmanager
    def use(self, call: Call, server: str, given: Secrets, resources: Iterable[Resource] = ()) -> Generator[Secrets]:
        """All secrets for a request to the server, with a capability token if its sources require one. If the server
        reports the lent token as expired, it is removed. It stays if the request carried other secrets, or if the
        caller lent another token since: the report may be about those."""
        principal, session = call.principal, call.session
        secrets = {**self._lent_tokens.secrets(principal, server, session), **given}
        source_ids = [resource.id for resource in resources if resource.auth_mode == "capability"]
        if source_ids and _PARAMETER not in secrets and self._capability_tokens.is_shared:
            secrets[_PARAMETER], _ = self._capability_tokens.issue(server, principal.username, source_ids)
        try:
            yield secrets
        except TokenExpired:
            if secrets and secrets == self._lent_tokens.secrets(principal, server, session):
                self._lent_tokens.remove(principal, server, self._lent_tokens.scope(principal, server, session))
            raise

    def cache_owner(self, call: Call, server: str) -> CacheOwner:
        """To whom a server's listing for this call applies: a token of the session may give access to other sources."""
        return call.principal, self._lent_tokens.scope(call.principal, server, call.session)

    def is_connected(self, call: Call, server: str, resource: Resource) -> bool:
        """Whether the gateway has the secret that a source requires, without any in the call itself."""
        if not resource.auth_required or resource.auth_mode in OPEN_MODES:
            return True
        can_issue = resource.auth_mode == "capability" and self._capability_tokens.is_shared
        return can_issue or bool(self._lent_tokens.secrets(call.principal, server, call.session))


def require_single_server(given: Secrets, servers: Collection[str]) -> None:
    """Reject secrets in a call to several servers, since each would receive the secrets meant for another."""
    remote = set(servers) - {BUILT_IN_SERVER}
    if given and len(remote) > 1:
        names = ", ".join(sorted(given))
        raise InvalidArgument(
            f"{names} would be sent to {len(remote)} servers",
            hint="call one server at a time, or store a token for each: POST /api/rag/connections/{server}",
        )
