"""The key of a server, for the operator who sets it up."""

from __future__ import annotations

import re

from armarium.capabilities.gateway.config.entries import SERVER_NAME
from armarium.capabilities.gateway.config.files import BUILT_IN_SERVER
from armarium.capabilities.gateway.settings import GatewaySettings
from armarium.capabilities.gateway.tokens.capability_tokens import server_key
from armarium.foundation.errors import ConfigError, InvalidArgument


def key_for(settings: GatewaySettings | None, server: str) -> str:
    """What the server of this name verifies its capability tokens with."""
    if not re.fullmatch(SERVER_NAME, server) or server == BUILT_IN_SERVER:
        raise InvalidArgument(
            f"{server[:80]!r} is not the name of a server", hint="as in rag-mcp.json: letters, digits, - and _"
        )
    secret = settings.tokens.secret if settings is not None else None
    if secret is None or not secret.get_secret_value():
        raise ConfigError(
            "there is no secret that keys are made from",
            hint="write a long random string into gateway.tokens.secret, or ARMARIUM_GATEWAY__TOKENS__SECRET",
        )
    return server_key(secret.get_secret_value().encode(), server)
