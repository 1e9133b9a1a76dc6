"""Which secrets go with a question to a server: what the caller gave, what they lent us, or a token of our own."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager

from armarium.capabilities.gateway.config.entries import OPEN_MODES
from armarium.capabilities.gateway.config.files import BUILT_IN_SERVER
from armarium.capabilities.gateway.model import Resource, Secrets
from armarium.capabilities.gateway.refusals import TokenExpired
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityTokens
from armarium.capabilities.gateway.tokens.lent_tokens import Connections
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.identity import Principal

_CAPABILITY = "capability_token"


class Keyring:
    """Hands out secrets, each to the one server it is for."""

    def __init__(self, connections: Connections, tokens: CapabilityTokens) -> None:
        self._connections = connections
        self._tokens = tokens

    def lent(self, principal: Principal, server: str) -> Secrets:
        """What the caller keeps with us for this server."""
        return self._connections.secrets(principal, server)

    @contextmanager
    def in_use(self, principal: Principal, server: str, secrets: Secrets) -> Generator[None]:
        """Let go of what the caller keeps with us when the server says that it is no good any more: only they can give
        another. When more went along, or the caller has lent another since, it may be about that."""
        try:
            yield
        except TokenExpired:
            if secrets and secrets == self.lent(principal, server):
                self._connections.forget(principal, server)
            raise

    def is_connected(self, principal: Principal, server: str, resource: Resource) -> bool:
        """Whether a server will have what it asks of this caller for a source, without anything in the call itself."""
        if not resource.auth_required or resource.auth_mode in OPEN_MODES:
            return True
        issued = resource.auth_mode == "capability" and self._tokens.is_shared
        return issued or bool(self.lent(principal, server))

    def for_sources(self, principal: Principal, server: str, resources: Iterable[Resource], given: Secrets) -> Secrets:
        """Everything the server may be told; with a capability token of ours where its sources want one."""
        secrets = {**self.lent(principal, server), **given}
        wanting = [resource.id for resource in resources if resource.auth_mode == "capability"]
        if wanting and _CAPABILITY not in secrets and self._tokens.is_shared:
            secrets[_CAPABILITY], _ = self._tokens.issue(server, principal.username, wanting)
        return secrets


def check_addressee(given: Secrets, servers: Collection[str]) -> None:
    """Refuse secrets in a call that goes to several servers: one must not learn what is meant for another."""
    others = set(servers) - {BUILT_IN_SERVER}
    if given and len(others) > 1:
        names = ", ".join(sorted(given))
        raise InvalidArgument(
            f"{names} would be told to {len(others)} servers at once",
            hint="ask one server at a time, or keep a token for each: POST /api/rag/connections/{server}",
        )
