"""Errors of the store, with the codes of its contract."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError, ConfigError


class StoreError(ArmariumError):
    """Base class of the errors of the store."""


class NotFound(StoreError, code="NOT_FOUND", http_status=404): ...


class AlreadyExists(StoreError, code="ALREADY_EXISTS", http_status=409): ...


class IsDirectory(StoreError, code="IS_DIRECTORY", http_status=409): ...


class NotDirectory(StoreError, code="NOT_DIRECTORY", http_status=409): ...


class InvalidPath(StoreError, code="INVALID_PATH", http_status=400): ...


class InvalidOffset(StoreError, code="INVALID_OFFSET", http_status=400):
    """An offset, a length or another number is out of range."""


class InvalidQuery(StoreError, code="INVALID_QUERY", http_status=400):
    """The query or another argument is invalid."""


class NotEmpty(StoreError, code="NOT_EMPTY", http_status=409): ...


class PermissionDenied(StoreError, code="PERMISSION_DENIED", security=True): ...


class PayloadTooLarge(StoreError, code="PAYLOAD_TOO_LARGE", http_status=413):
    """The content, or the resulting file, exceeds the size limit."""


class QuotaExceeded(StoreError, code="QUOTA_EXCEEDED", http_status=413): ...


class RateLimited(StoreError, code="RATE_LIMITED", retryable=True, http_status=429): ...


class ResourceBusy(StoreError, code="RESOURCE_BUSY", retryable=True):
    """The project is locked by other changes, or the database does not answer. Retry later."""


class SearchBackendError(StoreError, code="SEARCH_BACKEND_ERROR", retryable=True):
    """Neither semantic nor lexical search is possible."""


class SearchDisabled(SearchBackendError, retryable=False):
    """The operator has disabled search. A retry does not help."""


class Conflict(StoreError, code="CONFLICT", http_status=409): ...


class DatabaseUnavailable(ConfigError, code="DATABASE_UNAVAILABLE"): ...
