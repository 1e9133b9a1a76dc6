"""The contract's refusals: who may not ask, what may not be asked, and what is not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from armarium.capabilities.gateway.errors import GatewayError, UpstreamBusy, UpstreamUnavailable


class UnauthorizedUser(GatewayError):
    """The caller may not use this server at all."""

    code, contract_code, http_status, security = "unauthorized_user", "unauthorized_user", 403, True


class UnauthorizedSource(GatewayError):
    """The caller may not use this source."""

    code, contract_code, http_status, security = "unauthorized_source", "unauthorized_source", 403, True


class InvalidSource(GatewayError):
    """There is no such source, or its name fits several."""

    code, contract_code, http_status = "invalid_source", "invalid_source", 404


class TokenExpired(GatewayError):
    """The token that the server wants is missing, wrong or too old."""

    code, contract_code, http_status, security = "token_expired", "token_expired", 401, True


class TooManyCalls(UpstreamBusy):
    """The caller asks more often than the operator allows; a moment later it works."""


REFUSALS: Final[Mapping[str, type[GatewayError]]] = {
    refusal.code: refusal
    for refusal in (
        UnauthorizedUser,
        UnauthorizedSource,
        InvalidSource,
        UpstreamBusy,
        TokenExpired,
        UpstreamUnavailable,
    )
}
"""The contract's six codes, and what we raise for each."""
DENIALS: Final = (UnauthorizedUser, UnauthorizedSource, InvalidSource, TokenExpired)
"""What another attempt, or another way to the same sources, would not change."""
