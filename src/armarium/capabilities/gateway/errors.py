"""What goes wrong between the gateway and the servers behind it."""

from __future__ import annotations

from typing import Any, ClassVar

from armarium.foundation.errors import ArmariumError

TELL_THE_ADMINISTRATOR = "try again later, or tell whoever runs the gateway"


class GatewayError(ArmariumError):
    """Something about a server behind the gateway. Its message never holds what was sent there, nor an address."""

    code, http_status = "backend_error", 502
    contract_code: ClassVar[str] = "backend_unavailable"
    """The one of the RAG contract's six codes that says it to clients which know no others."""

    @property
    def for_operators(self) -> str | None:
        """What whoever runs the gateway can do about it. Callers cannot, and are not told."""
        return self.private.get("for_operators")


class UpstreamUnavailable(GatewayError):
    """The server cannot be reached, or went away while it worked on the call."""

    code, retryable, http_status = "backend_unavailable", True, 503


class UpstreamTimeout(GatewayError):
    """The server did not answer in time; it has been told that nobody waits any more."""

    code, retryable, http_status = "backend_timeout", True, 504


class UpstreamBusy(GatewayError):
    """As many calls as may wait for this server are waiting already."""

    code, retryable, http_status = "rate_limited", True, 429
    contract_code = "rate_limited"


class UpstreamProtocol(GatewayError):
    """The server answered with something that is not MCP."""

    code = "backend_protocol_error"


class UpstreamTooLarge(GatewayError):
    """The server's answer is larger than the gateway takes."""

    code = "backend_answer_too_large"


class UpstreamRefused(GatewayError):
    """The server is well and does not want this very request: no such tool, or arguments it does not take."""

    code = "backend_refused"


class RegistryInvalid(GatewayError):
    """A file of servers cannot be used; nothing of it is."""

    code, http_status = "registry_invalid", 422

    def __init__(self, message: str, *, problems: tuple[str, ...] = (), hint: str | None = None, **more: Any) -> None:
        super().__init__(message, hint=hint, problems=list(problems) or None, **more)
        self.problems = problems
        """Every mistake found, each with its place; the message is the first of them."""
