"""The registry's errors with the codes of its contract, and how its tools render them."""

from __future__ import annotations

import orjson

from armarium.foundation.errors import ArmariumError, ConfigError, InvalidArgument
from armarium.foundation.schema import Json
from armarium.foundation.tools import ErrorStyle

KNOWN_FILES = "list_files lists them, register_file registers one"
KNOWN_FINDINGS = "list_findings lists them"
KNOWN_ISSUES = "list_issues lists them, create_issue creates one"
"""Hints for callers of tools. Commands have their own."""


class RegistryError(ArmariumError):
    """The base of the registry's errors."""


class NotFound(RegistryError, code="not_found", http_status=404):
    """No file, finding or issue has this id."""


class ValidationError(RegistryError, code="validation_error", http_status=400):
    """An argument or a report is invalid."""


class Conflict(RegistryError, code="conflict", http_status=409):
    """The findings or the judgement are not what the caller saw: something changed meanwhile."""


class AllSkipped(RegistryError, code="all_results_skipped", http_status=422):
    """No result of the report is in a file of the project, so nothing was imported."""


class InvalidPath(RegistryError, code="invalid_path", security=True, http_status=400):
    """The path is absolute, leads out of the project (also through a link), or is not a possible path."""


class Busy(RegistryError, code="busy", retryable=True):
    """Another process was writing and did not finish in time."""


class Unwritable(RegistryError, code="unwritable", retryable=True):
    """The registry cannot be written: the disk is full, or the operating system does not permit it."""


class Damaged(RegistryError, code="damaged"):
    """The registry's file is damaged."""


class RegistryUnusable(ConfigError, code="REGISTRY_UNUSABLE"):
    """The registry cannot be opened: the directory is missing, access is denied, or the file has another version."""


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
    # The contract has one code for all invalid arguments.
    translate=lambda error: (
        ValidationError(error.message, hint=error.hint) if isinstance(error, InvalidArgument) else error
    ),
)
