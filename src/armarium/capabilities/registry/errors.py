"""The registry's errors with the codes of its contract, and how its tools render them."""

from __future__ import annotations

import orjson

from armarium.foundation.errors import ArmariumError, ConfigError, InvalidArgument
from armarium.foundation.schema import Json
from armarium.foundation.tools import ErrorStyle


class RegistryError(ArmariumError):
    """The base of the registry's errors."""


class NotFound(RegistryError):
    """No file, finding or issue has this id."""

    code, http_status = "not_found", 404


class ValidationError(RegistryError):
    """An argument or a report is invalid."""

    code, http_status = "validation_error", 400


class InvalidPath(RegistryError):
    """The path is absolute, leads out of the project (also through a link), or is not a possible path."""

    code, security, http_status = "invalid_path", True, 400


class Busy(RegistryError):
    """Another process was writing and did not finish in time."""

    code, retryable = "busy", True


class Unwritable(RegistryError):
    """The registry cannot be written: the disk is full, or the operating system does not permit it."""

    code, retryable = "unwritable", True


class Damaged(RegistryError):
    """The registry's file is damaged."""

    code = "damaged"


class RegistryUnusable(ConfigError):
    """The registry cannot be opened: the directory is missing, access is denied, or the file has another version."""

    code = "REGISTRY_UNUSABLE"


def _translate(error: ArmariumError) -> ArmariumError:
    """The contract has one code for all invalid arguments."""
    return ValidationError(error.message, hint=error.hint) if isinstance(error, InvalidArgument) else error


def _render(error: ArmariumError) -> Json:
    text = f"{error.message} ({error.hint})" if error.hint else error.message
    return {"error": text, "code": error.code}


REGISTRY_ERRORS = ErrorStyle(
    _render,
    {
        "type": "object",
        "properties": {
            "error": {"type": "string", "description": "What happened, and what to do."},
            "code": {"type": "string", "description": "Stable; branch on this, not on the message."},
        },
        "required": ["error", "code"],
    },
    text=lambda error: orjson.dumps(_render(error)).decode(),
    translate=_translate,
)
