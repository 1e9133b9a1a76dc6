"""The base class of all errors Armarium raises on purpose, and the errors that every capability shares."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self


class ArmariumError(Exception):
    """An error that the caller may see. It is immutable; `with_context` creates a more detailed copy. The message, the
    hint and the details reach the caller. They must not contain host paths, secrets or file content that the caller
    cannot read. `private` holds what only an operator may see."""

    code: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False
    security: ClassVar[bool] = False
    """Whether this is a denial, which is logged at WARNING with what was attempted."""
    http_status: ClassVar[int | None] = None
    """The status over plain HTTP. By default 403 for a denial, 503 if it is retryable, and 500 otherwise."""

    def __init__(
        self, message: str, *, hint: str | None = None, private: Mapping[str, Any] | None = None, **details: Any
    ) -> None:
        super().__init__(message)
        self._hint = hint
        self._details = MappingProxyType(details)
        self._private = MappingProxyType(dict(private or {}))

    @property
    def message(self) -> str:
        """What happened."""
        return self.args[0]

    @property
    def hint(self) -> str | None:
        """What to do next."""
        return self._hint

    @property
    def details(self) -> MappingProxyType[str, Any]:
        """Facts about the error that the caller may see, by name."""
        return self._details

    @property
    def private(self) -> MappingProxyType[str, Any]:
        """Facts about the error that only an operator may see, by name."""
        return self._private

    def with_context(
        self,
        *,
        message: str | None = None,
        hint: str | None = None,
        private: Mapping[str, Any] | None = None,
        **details: Any,
    ) -> Self:
        """A copy of this error with more context, and with the same cause and traceback. `message`, `hint` and
        `private` replace what the error has. A detail that the error already has stays, because it was known closer to
        the cause."""
        copy = type(self).__new__(type(self), self.message if message is None else message)
        copy.__dict__.update(self.__dict__)
        copy._hint = self._hint if hint is None else hint
        copy._details = MappingProxyType({**details, **self._details})
        copy._private = MappingProxyType({**self._private, **(private or {})})
        copy.__context__ = self.__context__
        copy.__cause__ = self.__cause__
        copy.__suppress_context__ = self.__suppress_context__
        return copy.with_traceback(self.__traceback__)


class Internal(ArmariumError):
    """An unexpected failure inside the server. The id identifies the log entry with the details."""

    code = "INTERNAL"


class InvalidArgument(ArmariumError):
    """An argument is missing, has the wrong type or contradicts another."""

    code, http_status = "INVALID_ARGUMENT", 400


class MissingArgument(InvalidArgument):
    """A required argument is missing. Some contracts have a separate code for this."""


class ArgumentOutOfRange(InvalidArgument):
    """A number, a string or a list is smaller or larger than allowed."""


class UnknownTool(ArmariumError):
    """There is no tool of that name."""

    code, http_status = "UNKNOWN_TOOL", 404


class ToolFailed(ArmariumError):
    """A remote tool reported a failure. Its result, passed on unchanged, has the reason."""

    code = "TOOL_FAILED"


class TooManyCalls(ArmariumError):
    """The caller has too many calls, or too many bytes of results, in flight. The same call can succeed later."""

    code, retryable, http_status = "TOO_MANY_CALLS", True, 429


class ResponseTooLarge(ArmariumError):
    """The encoded result exceeds the size limit. Changes made by the call persist."""

    code, http_status = "RESPONSE_TOO_LARGE", 400


class NotPermitted(ArmariumError):
    """The caller's key does not permit this: another capability, or a change with a read-only key."""

    code, security, http_status = "NOT_PERMITTED", True, 403


class NotInGroup(ArmariumError):
    """The caller is in none of the groups that are allowed to do this."""

    code, security, http_status = "GROUP_REQUIRED", True, 403


class DeadlineExceeded(ArmariumError):
    """The call exceeded its deadline. Changes made by then persist."""

    code, http_status = "DEADLINE_EXCEEDED", 504


class Cancelled(ArmariumError):
    """The caller cancelled the call or disconnected. Changes made by then persist."""

    code, http_status = "CANCELLED", 503


class ConfigError(ArmariumError):
    """The settings are invalid; the server does not start."""

    code = "CONFIG_INVALID"


class BindFailed(ConfigError):
    """The server cannot listen on the configured address."""

    code = "BIND_FAILED"


class TlsConfigInvalid(ConfigError):
    """The TLS certificate or its key is unusable."""

    code = "TLS_CONFIG_INVALID"
