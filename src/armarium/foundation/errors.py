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

    def __init_subclass__(
        cls,
        *,
        code: str | None = None,
        retryable: bool | None = None,
        security: bool | None = None,
        http_status: int | None = None,
    ) -> None:
        """What an error is, as keywords of its class. What is not named is as in its base."""
        traits = {"code": code, "retryable": retryable, "security": security, "http_status": http_status}
        for name, value in traits.items():
            if value is not None:
                setattr(cls, name, value)

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


class Internal(ArmariumError, code="INTERNAL"):
    """An unexpected failure inside the server. The id identifies the log entry with the details."""


class InvalidArgument(ArmariumError, code="INVALID_ARGUMENT", http_status=400):
    """An argument is missing, has the wrong type or contradicts another."""


class MissingArgument(InvalidArgument):
    """A required argument is missing. Some contracts have a separate code for this."""


class ArgumentOutOfRange(InvalidArgument):
    """A number, a string or a list is smaller or larger than allowed."""


class UnknownTool(ArmariumError, code="UNKNOWN_TOOL", http_status=404):
    """There is no tool of that name."""


class ToolFailed(ArmariumError, code="TOOL_FAILED"):
    """A remote tool reported a failure. Its result, passed on unchanged, has the reason."""


class TooManyCalls(ArmariumError, code="TOO_MANY_CALLS", retryable=True, http_status=429):
    """The caller has too many calls, or too many bytes of results, in flight. The same call can succeed later."""


class ResponseTooLarge(ArmariumError, code="RESPONSE_TOO_LARGE", http_status=400):
    """The encoded result exceeds the size limit. Changes made by the call persist."""


class NotPermitted(ArmariumError, code="NOT_PERMITTED", security=True, http_status=403):
    """The caller's key does not permit this: another capability, or a change with a read-only key."""


class NotInGroup(ArmariumError, code="GROUP_REQUIRED", security=True, http_status=403):
    """The caller is in none of the groups whose members may do this."""


class DeadlineExceeded(ArmariumError, code="DEADLINE_EXCEEDED", http_status=504):
    """The call exceeded its deadline. Changes made by then persist."""


class Cancelled(ArmariumError, code="CANCELLED", http_status=503):
    """The caller cancelled the call or disconnected. Changes made by then persist."""


class ConfigError(ArmariumError, code="CONFIG_INVALID"):
    """The settings are invalid; the server does not start."""


class BindFailed(ConfigError, code="BIND_FAILED"):
    """The server cannot listen on the configured address."""


class TlsConfigInvalid(ConfigError, code="TLS_CONFIG_INVALID"):
    """The TLS certificate or its key is unusable."""
