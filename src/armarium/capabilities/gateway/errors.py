"""Errors of the gateway: failures of servers, and the six error codes of the RAG contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from armarium.foundation.errors import ArmariumError

CONTACT_ADMINISTRATOR = "try again later, or contact the gateway's administrator"


class GatewayError(ArmariumError):
    """An error of a server behind the gateway. Its message never contains request data or an address."""

    code, http_status = "backend_error", 502
    contract_code: ClassVar[str] = "backend_unavailable"
    """The nearest of the RAG contract's six codes, for clients that know only those."""

    @property
    def for_operators(self) -> str | None:
        """What an operator can do about it. Callers do not see it."""
        return self.private.get("for_operators")


class UpstreamUnavailable(GatewayError):
    """The server cannot be reached, or the connection ended during the call."""

    code, retryable, http_status = "backend_unavailable", True, 503


class UpstreamTimeout(GatewayError):
    """The server did not respond in time. The request was cancelled at the server."""

    code, retryable, http_status = "backend_timeout", True, 504


class UpstreamBusy(GatewayError):
    """Too many calls wait for this server."""

    code, retryable, http_status = "rate_limited", True, 429
    contract_code = "rate_limited"


class UpstreamProtocol(GatewayError):
    """The server sent a response that is not valid MCP."""

    code = "backend_protocol_error"


class UpstreamTooLarge(GatewayError):
    """The server's response exceeds the size limit."""

    code = "backend_answer_too_large"


class UpstreamRefused(GatewayError):
    """The server works but rejected this request: unknown tool, or invalid arguments."""

    code = "backend_refused"


class ProgramNotAllowed(GatewayError):
    """An entry that was sent through the API would start a program which the operator has not allowed."""

    code, security, http_status = "program_not_allowed", True, 403
    contract_code = "unauthorized_user"


class ServerConfigInvalid(GatewayError):
    """The server configuration is invalid and was not applied."""

    code, http_status = "registry_invalid", 422

    def __init__(self, message: str, *, problems: tuple[str, ...] = (), hint: str | None = None, **more: Any) -> None:
        super().__init__(message, hint=hint, problems=list(problems) or None, **more)
        self.problems = problems
        """Every mistake with its location; the message is the first of them."""


class UnauthorizedUser(GatewayError):
    """The caller may not use this server."""

    code, contract_code, http_status, security = "unauthorized_user", "unauthorized_user", 403, True


class UnauthorizedSource(GatewayError):
    """The caller may not use this source."""

    code, contract_code, http_status, security = "unauthorized_source", "unauthorized_source", 403, True


class InvalidSource(GatewayError):
    """The source does not exist, or its id is ambiguous."""

    code, contract_code, http_status = "invalid_source", "invalid_source", 404


class TokenExpired(GatewayError):
    """The token that the server requires is missing, invalid or expired."""

    code, contract_code, http_status, security = "token_expired", "token_expired", 401, True


class TooManyCalls(UpstreamBusy):
    """The caller exceeded the rate limit."""


CONTRACT_ERRORS: Final[Mapping[str, type[GatewayError]]] = {
    error.code: error
    for error in (UnauthorizedUser, UnauthorizedSource, InvalidSource, UpstreamBusy, TokenExpired, UpstreamUnavailable)
}
"""The contract's six codes and the error raised for each."""
DENIALS: Final = (UnauthorizedUser, UnauthorizedSource, InvalidSource, TokenExpired)
"""Errors that neither a retry nor another tool for the same sources would avoid."""
