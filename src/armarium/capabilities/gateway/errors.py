"""Errors of the gateway: failures of servers, and the six error codes of the RAG contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from armarium.foundation.errors import ArmariumError

CONTACT_ADMINISTRATOR = "try again later, or contact the gateway's administrator"


class GatewayError(ArmariumError, code="backend_error", http_status=502):
    """An error of a server behind the gateway. Its message never contains request data or an address."""

    contract_code: ClassVar[str] = "backend_unavailable"
    """The nearest of the RAG contract's six codes, for clients that know only those."""

    def __init_subclass__(cls, *, contract_code: str | None = None, **traits: Any) -> None:
        super().__init_subclass__(**traits)
        cls.contract_code = contract_code or cls.contract_code

    @property
    def for_operators(self) -> str | None:
        """What an operator can do about it. Callers do not see it."""
        return self.private.get("for_operators")


class UpstreamUnavailable(GatewayError, code="backend_unavailable", retryable=True, http_status=503):
    """The server cannot be reached, or the connection ended during the call."""


class UpstreamTimeout(GatewayError, code="backend_timeout", retryable=True, http_status=504):
    """The server did not respond in time. The request was cancelled at the server."""


class UpstreamBusy(GatewayError, code="rate_limited", retryable=True, http_status=429, contract_code="rate_limited"):
    """Too many calls wait for this server."""


class UpstreamProtocol(GatewayError, code="backend_protocol_error"):
    """The server sent a response that is not valid MCP."""


class UpstreamTooLarge(GatewayError, code="backend_answer_too_large"):
    """The server's response exceeds the size limit."""


class UpstreamRefused(GatewayError, code="backend_refused"):
    """The server works but rejected this request: unknown tool, or invalid arguments."""


class ProgramNotAllowed(
    GatewayError, code="program_not_allowed", security=True, http_status=403, contract_code="unauthorized_user"
):
    """An entry that was sent through the API would start a program which the operator has not allowed."""


class ServerConfigInvalid(GatewayError, code="registry_invalid", http_status=422):
    """The server configuration is invalid and was not applied."""

    def __init__(self, message: str, *, problems: tuple[str, ...] = (), hint: str | None = None, **more: Any) -> None:
        super().__init__(message, hint=hint, problems=list(problems) or None, **more)
        self.problems = problems
        """Every mistake with its location; the message is the first of them."""


class UnauthorizedUser(
    GatewayError, code="unauthorized_user", contract_code="unauthorized_user", http_status=403, security=True
):
    """The caller may not use this server."""


class UnauthorizedSource(
    GatewayError, code="unauthorized_source", contract_code="unauthorized_source", http_status=403, security=True
):
    """The caller may not use this source."""


class InvalidSource(GatewayError, code="invalid_source", contract_code="invalid_source", http_status=404):
    """The source does not exist, or its id is ambiguous."""


class TokenExpired(GatewayError, code="token_expired", contract_code="token_expired", http_status=401, security=True):
    """The token that the server requires is missing, invalid or expired."""


class ExclusiveServer(GatewayError, code="exclusive_server", contract_code="unauthorized_source", http_status=409):
    """A server that excludes all others is selected in this session."""


class LinkExpired(GatewayError, code="link_expired", contract_code="token_expired", http_status=410):
    """The download link is invalid or has expired."""


class FileTooLarge(GatewayError, code="file_too_large", contract_code="invalid_source", http_status=413):
    """The file is too large to be passed to a server."""


class FileChangedMeanwhile(GatewayError, code="file_changed", retryable=True, http_status=409):
    """The file changed while it was read."""


class DownloadsUnavailable(GatewayError, code="downloads_unavailable", http_status=409):
    """The server cannot reach this one to fetch a file."""


class SelectionsUnavailable(GatewayError, code="selections_unavailable", retryable=True, http_status=503):
    """The stored selections cannot be read or written."""


class TooManyCalls(UpstreamBusy):
    """The caller exceeded the rate limit."""


CONTRACT_ERRORS: Final[Mapping[str, type[GatewayError]]] = {
    error.code: error
    for error in (UnauthorizedUser, UnauthorizedSource, InvalidSource, UpstreamBusy, TokenExpired, UpstreamUnavailable)
}
"""The contract's six codes and the error raised for each."""
DENIALS: Final = (UnauthorizedUser, UnauthorizedSource, InvalidSource, TokenExpired)
"""Errors that neither a retry nor another tool for the same sources would avoid."""
