"""What can go wrong in the registry, each with the stable code its contract gives it."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError, ConfigError


class RegistryError(ArmariumError):
    """The registry could not do what was asked of it."""


class NotFound(RegistryError):
    """No file, finding or issue has this id."""

    code, http_status = "not_found", 404


class ValidationError(RegistryError):
    """An argument, or a report, is not as it must be."""

    code, http_status = "validation_error", 400


class InvalidPath(RegistryError):
    """The path is absolute, or leads out of the project, if only through a link; or no file can have it."""

    code, security, http_status = "invalid_path", True, 400


class Busy(RegistryError):
    """Another process is writing, and did not end in time."""

    code, retryable = "busy", True


class Unwritable(RegistryError):
    """The registry cannot be written: the disk is full, or the operating system refuses."""

    code, retryable = "unwritable", True


class Damaged(RegistryError):
    """The registry's file cannot be read as what it should be."""

    code = "damaged"


class RegistryUnusable(ConfigError):
    """The registry cannot be opened: no such directory, no permission, or a file of another version."""

    code = "REGISTRY_UNUSABLE"
