"""The one base of everything Armarium raises on purpose: a stable code, a message, and what to do next."""

from __future__ import annotations

from typing import Any, ClassVar, Self


class ArmariumError(Exception):
    """Something went wrong that the caller may know about.

    The message, the hint and the details all reach the caller, so none of them may hold a host path, a secret or
    file content the caller could not read anyway. What only an operator may see goes into `private`.
    """

    code: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False
    security: ClassVar[bool] = False
    """A denial: logged at WARNING with what was attempted."""
    http_status: ClassVar[int | None] = None
    """What plain HTTP says of it; without, 403 for a denial, 503 when trying again can help, and 500 otherwise."""

    def __init__(
        self, message: str, *, hint: str | None = None, private: dict[str, Any] | None = None, **details: Any
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details
        self.private = private or {}

    def with_context(self, *, hint: str) -> Self:
        """A copy with another hint."""
        copy = type(self).__new__(type(self), *self.args)
        copy.__dict__.update(self.__dict__)
        copy.hint = hint
        return copy


class Internal(ArmariumError):
    """A fault of ours; the id leads to the log line that has the rest."""

    code = "INTERNAL"


class InvalidArgument(ArmariumError):
    """An argument is missing, has the wrong type or contradicts another."""

    code, http_status = "INVALID_ARGUMENT", 400


class MissingArgument(InvalidArgument):
    """A required argument is absent. Contracts that tell it apart give it a code of their own."""


class ArgumentOutOfRange(InvalidArgument):
    """A number, a text or a list is smaller or larger than it may be."""


class UnknownTool(ArmariumError):
    """No tool of that name is served here."""

    code, http_status = "UNKNOWN_TOOL", 404


class ToolFailed(ArmariumError):
    """Whoever runs the tool says that it failed. The result, passed on as it is, says why."""

    code = "TOOL_FAILED"


class TooManyCalls(ArmariumError):
    """The caller has as much in flight as it may: calls, or bytes of answers. Later the same call works."""

    code, retryable, http_status = "TOO_MANY_CALLS", True, 429


class ResponseTooLarge(ArmariumError):
    """The answer, encoded, is larger than an answer may be. What the call changed stays changed."""

    code, http_status = "RESPONSE_TOO_LARGE", 400


class NotInGroup(ArmariumError):
    """The caller is in none of the groups that may do this."""

    code, security, http_status = "GROUP_REQUIRED", True, 403


class DeadlineExceeded(ArmariumError):
    """The call took longer than it may. What it had changed by then stays changed."""

    code, http_status = "DEADLINE_EXCEEDED", 504


class Cancelled(ArmariumError):
    """The caller took the call back, or went away. What it had changed by then stays changed."""

    code, http_status = "CANCELLED", 503


class ConfigError(ArmariumError):
    """The settings cannot be used; the server does not start."""

    code = "CONFIG_INVALID"


class BindFailed(ConfigError):
    """The server cannot listen where it should."""

    code = "BIND_FAILED"


class TlsConfigInvalid(ConfigError):
    """The certificate or its key cannot be used."""

    code = "TLS_CONFIG_INVALID"
