"""What can go wrong in the sandbox, each with a stable code."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError


class SandboxError(ArmariumError):
    """Base of the sandbox's errors."""


class UnknownRoot(SandboxError):
    """No root of that name is configured."""

    code = "UNKNOWN_ROOT"


class ToolNotAllowed(SandboxError):
    """The root's allow-list does not name the tool."""

    code, security = "TOOL_NOT_ALLOWED", True


class ReadOnlyRoot(SandboxError):
    """The root is served read-only."""

    code, security = "READ_ONLY_ROOT", True


class PathEscapesRoot(SandboxError):
    """The path leads, or a link on it leads, outside the root."""

    code, security = "PATH_ESCAPES_ROOT", True


class InvalidPath(SandboxError):
    """No file can have this path: a NUL byte, a name too long, characters no file system stores."""

    code, security = "INVALID_PATH", True


class PathIgnored(SandboxError):
    """The root's ignore list hides the path."""

    code, security = "PATH_IGNORED", True


class NotFound(SandboxError):
    """Nothing is there."""

    code = "NOT_FOUND"


class AlreadyExists(SandboxError):
    """Something is there that must not be."""

    code = "ALREADY_EXISTS"


class NotADirectory(SandboxError):
    """A directory was expected."""

    code = "NOT_A_DIRECTORY"


class IsADirectory(SandboxError):
    """A file was expected."""

    code = "IS_A_DIRECTORY"


class NotARegularFile(SandboxError):
    """A FIFO, socket or device, which is never opened for its content."""

    code = "NOT_A_REGULAR_FILE"


class CannotRemoveRoot(SandboxError):
    """The root directory itself stays."""

    code = "CANNOT_REMOVE_ROOT"


class FileTooLarge(SandboxError):
    """More than a full read may return."""

    code = "FILE_TOO_LARGE"


class PatchFailed(SandboxError):
    """The diff does not apply; nothing was written."""

    code = "PATCH_FAILED"


class InvalidPattern(SandboxError):
    """The regular expression or glob does not parse."""

    code = "INVALID_PATTERN"


class Conflict(SandboxError):
    """The file is not in the state the caller last saw."""

    code = "CONFLICT"


class PermissionDenied(SandboxError):
    """The operating system refuses."""

    code = "PERMISSION_DENIED"


class StorageFailure(SandboxError):
    """The disk is full or failing."""

    code, retryable = "STORAGE_FAILURE", True
