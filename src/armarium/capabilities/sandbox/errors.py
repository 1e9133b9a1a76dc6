"""What can go wrong in the sandbox, each with a stable code."""

from __future__ import annotations

from armarium.foundation.files.errors import FileError


class UnknownRoot(FileError):
    """No root of that name is configured."""

    code = "UNKNOWN_ROOT"


class ToolNotAllowed(FileError):
    """The root's allow-list does not name the tool."""

    code, security = "TOOL_NOT_ALLOWED", True


class ReadOnlyRoot(FileError):
    """The root is served read-only."""

    code, security = "READ_ONLY_ROOT", True


class PathIgnored(FileError):
    """The root's ignore list hides the path."""

    code, security = "PATH_IGNORED", True


class NotFound(FileError):
    """Nothing is there."""

    code = "NOT_FOUND"


class AlreadyExists(FileError):
    """Something is there that must not be."""

    code = "ALREADY_EXISTS"


class CannotRemoveRoot(FileError):
    """The root directory itself stays."""

    code = "CANNOT_REMOVE_ROOT"


class FileTooLarge(FileError):
    """More than a full read may return."""

    code = "FILE_TOO_LARGE"


class PatchFailed(FileError):
    """The diff does not apply; nothing was written."""

    code = "PATCH_FAILED"


class Conflict(FileError):
    """The file is not in the state the caller last saw."""

    code = "CONFLICT"


class PermissionDenied(FileError):
    """The operating system refuses."""

    code = "PERMISSION_DENIED"


class StorageFailure(FileError):
    """The disk is full or failing."""

    code, retryable = "STORAGE_FAILURE", True


class RootUnavailable(FileError):
    """The directory of a root is gone, or another one is in its place that this process may not open."""

    code, retryable = "ROOT_UNAVAILABLE", True


class ResourceBusy(FileError):
    """Another process holds the directory. Nothing was changed."""

    code, retryable = "RESOURCE_BUSY", True
