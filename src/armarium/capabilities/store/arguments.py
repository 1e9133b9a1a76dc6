"""Arguments of the store's tools; their docstrings are the descriptions in the schemas."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from armarium.capabilities.store.model import WriteMode
from armarium.foundation.tools import Args


def _whole(value: Any) -> Any:
    """JSON has no integer type: 1e30 is an integer too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# No minimum in the schema, which is checked first: the contract reports an invalid project, path or content before an
# invalid number. The service checks numbers in that order.
Number = Annotated[int, BeforeValidator(_whole)]


class InProject(Args):
    project: str
    """Name of the project, 1 to 128 of A-Z a-z 0-9 _ - . – it exists as soon as a file is in it."""


class AtPath(InProject):
    path: str
    """Path in the project, like /notes/today.md; "" is the project's root."""


class Repeatable(Args):
    """A change that can be repeated idempotently."""

    request_id: str | None = None
    """An id of your choice for this change, 1 to 128 characters, such as a UUID. If you get no result, send the same
    call with the same id again: the change is made once, and you get its result. Valid for a day; use a new id for each
    change."""


class ReadArgs(AtPath):
    offset: Number = 0
    """First byte, counted from 0."""
    length: Number = -1
    """Number of bytes; -1 reads to the end."""


class WriteArgs(AtPath, Repeatable):
    content: str
    """Text to write."""
    content_encoding: str = "utf-8"
    """Only utf-8."""
    offset: Number = 0
    """For OVERWRITE: the first byte to replace, at most the file's size. APPEND ignores it, TRUNCATE requires 0."""
    mode: WriteMode = "APPEND"
    """APPEND adds to the end, OVERWRITE replaces bytes from `offset` on and keeps the rest, TRUNCATE replaces all."""
    create_only: bool = False
    """Fail with ALREADY_EXISTS if the file exists."""
    if_version: Number | None = None
    """Fail with CONFLICT unless the file has this version, as returned by other calls."""


class DeleteArgs(AtPath, Repeatable):
    recursive: bool = False
    """Delete a directory with all files in it."""
    if_version: Number | None = None
    """For a file: fail with CONFLICT unless it has this version."""


class PurgeArgs(InProject):
    path: str
    """File or directory; "" is the whole project."""


class RenameArgs(InProject, Repeatable):
    from_path: str
    """File or directory to move."""
    to_path: str
    """Its new path."""
    overwrite: bool = False
    """Let a file replace the file at `to_path`."""


class ListArgs(InProject):
    path: str = ""
    """Directory to list; "" or "/" is the project's root."""
    depth: Number = 1
    """Levels below it; 0 returns only the path itself."""
    limit: Number | None = Field(default=None, json_schema_extra={"default": 256})
    """Maximum number of entries, 1 or more; 256 unless the operator has configured another default. Capped at the
    operator's maximum."""


class SearchArgs(InProject):
    project: str
    """Name of the project; "*" searches all your projects."""
    query: str
    """What to search for, in words."""
    path_prefix: str = ""
    """Only files whose path starts with this string: /notes also matches /notes-old/a.md."""
    limit: Number | None = Field(default=None, json_schema_extra={"default": 5})
    """Maximum number of chunks, 1 or more; 5 unless the operator has configured another default. Capped at the
    operator's maximum."""


class RestoreArgs(AtPath, Repeatable):
    version: Number
    """Version to restore, as listed by file_history."""


class ReadVersionArgs(ReadArgs):
    version: Number | None = None
    """A stored version, as listed by file_history; by default the current one."""


class SendArgs(AtPath):
    version: Number | None = None
    """A stored version; by default the current one."""


class Paged(Args):
    cursor: str = Field(default="", max_length=1024)
    """Where to continue: `next_cursor` of the previous page."""


class ListPageArgs(ListArgs, Paged):
    pass


class ProjectsArgs(Paged):
    limit: int = Field(default=50, ge=1, le=200)
    """Maximum number of projects."""


class DeletedArgs(InProject, Paged):
    path: str = ""
    """Directory; "" is the whole project."""
    limit: int = Field(default=256, ge=1, le=1000)
    """Maximum number of files."""
