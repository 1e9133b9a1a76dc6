"""Errors of the store, with the codes of its contract."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError, ConfigError


class StoreError(ArmariumError):
    """Base class of the errors of the store."""


class NotFound(StoreError):
    code, http_status = "NOT_FOUND", 404


class AlreadyExists(StoreError):
    code, http_status = "ALREADY_EXISTS", 409


class IsDirectory(StoreError):
    code, http_status = "IS_DIRECTORY", 409


class NotDirectory(StoreError):
    code, http_status = "NOT_DIRECTORY", 409


class InvalidPath(StoreError):
    code, http_status = "INVALID_PATH", 400


class InvalidOffset(StoreError):
    """An offset, a length or another number is out of range."""

    code, http_status = "INVALID_OFFSET", 400


class InvalidQuery(StoreError):
    """The query or another argument is invalid."""

    code, http_status = "INVALID_QUERY", 400


class NotEmpty(StoreError):
    code, http_status = "NOT_EMPTY", 409


class PermissionDenied(StoreError):
    code, security = "PERMISSION_DENIED", True


class PayloadTooLarge(StoreError):
    """The content, or the resulting file, exceeds the size limit."""

    code, http_status = "PAYLOAD_TOO_LARGE", 413


class QuotaExceeded(StoreError):
    code, http_status = "QUOTA_EXCEEDED", 413


class RateLimited(StoreError):
    code, retryable, http_status = "RATE_LIMITED", True, 429


class ResourceBusy(StoreError):
    """The project is locked by other changes, or the database does not answer. Retry later."""

    code, retryable = "RESOURCE_BUSY", True


class SearchBackendError(StoreError):
    """Neither semantic nor lexical search is possible."""

    code, retryable = "SEARCH_BACKEND_ERROR", True


class SearchDisabled(SearchBackendError):
    """The operator has disabled search. A retry does not help."""

    retryable = False


class Conflict(StoreError):
    code, http_status = "CONFLICT", 409


class DatabaseUnavailable(ConfigError):
    code = "DATABASE_UNAVAILABLE"
