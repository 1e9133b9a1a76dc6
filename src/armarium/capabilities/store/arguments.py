"""The arguments of the store's tools, as the model is told them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from armarium.capabilities.store.model import WriteMode
from armarium.foundation.tools import Args


def _whole(value: Any) -> Any:
    """JSON knows no integers: 1e30 is a whole number as well."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Without a least value: the schema is looked at before everything else, and the contract wants a bad project, path or
# content told before a bad number. The store checks the numbers itself, in that order.
Number = Annotated[int, BeforeValidator(_whole)]


class InProject(Args):
    """Whose files."""

    project: str
    """Name of the project, 1 to 128 of A-Z a-z 0-9 _ - . – it exists as soon as a file is in it."""


class AtPath(InProject):
    """Which file or directory."""

    path: str
    """Path in the project, like /notes/today.md; "" is the project's root."""


class Repeatable(Args):
    """A change that can be asked for again without being made again."""

    request_id: str | None = None
    """An id of your choice for this change, 1 to 128 characters, such as a UUID. If no answer comes, send the same call
    with the same id again: the change is made once, and you get its answer. Remembered for a day; use a new id for each
    change."""


class ReadArgs(AtPath):
    """Which bytes."""

    offset: Number = 0
    """First byte, counted from 0."""
    length: Number = -1
    """Number of bytes; -1 reads to the end."""


class WriteArgs(AtPath, Repeatable):
    """What to write where."""

    content: str
    """Text to write."""
    content_encoding: str = "utf-8"
    """Only utf-8."""
    offset: Number = 0
    """For OVERWRITE: the byte to begin at, at most the file's size. APPEND does not look at it, TRUNCATE wants 0."""
    mode: WriteMode = "APPEND"
    """APPEND adds to the end, OVERWRITE replaces bytes from `offset` on and keeps the rest, TRUNCATE replaces all."""
    create_only: bool = False
    """Fail with ALREADY_EXISTS if the file exists."""
    if_version: Number | None = None
    """Fail with CONFLICT unless the file is in this version, as other answers gave it."""


class DeleteArgs(AtPath, Repeatable):
    """What to delete."""

    recursive: bool = False
    """Delete a directory with all files in it."""
    if_version: Number | None = None
    """For a file: fail with CONFLICT unless it is in this version."""


class RenameArgs(InProject, Repeatable):
    """What to move where."""

    from_path: str
    """File or directory to move."""
    to_path: str
    """Its new path."""
    overwrite: bool = False
    """Let a file replace the file at `to_path`."""


class ListArgs(InProject):
    """What to list."""

    path: str = ""
    """Directory to list; "" or "/" is the project's root."""
    depth: Number = 1
    """Levels below it; 0 tells about the path alone."""
    limit: Number | None = Field(default=None, json_schema_extra={"default": 256})
    """Most entries, 1 or more; 256 unless the operator chose another number. Larger ones are brought down to the
    operator's maximum, and `has_more` says so."""


class SearchArgs(InProject):
    """What to look for."""

    project: str
    """Name of the project; "*" searches all your projects."""
    query: str
    """What to look for, in words."""
    path_prefix: str = ""
    """Only files whose path begins with this, letter by letter: /notes also finds /notes-old/a.md."""
    limit: Number | None = Field(default=None, json_schema_extra={"default": 5})
    """Most chunks, 1 or more; 5 unless the operator chose another number. Larger ones are brought down to the
    operator's maximum."""


class RestoreArgs(AtPath, Repeatable):
    """Which version to get back."""

    version: Number
    """Version to write again, as file_history names it."""
