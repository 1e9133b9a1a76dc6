"""What may be asked of the store: projects, paths, content and numbers, and the contract's code for what may not."""

from __future__ import annotations

import re
from dataclasses import dataclass

from armarium.capabilities.store.errors import InvalidOffset, InvalidPath, InvalidQuery, PayloadTooLarge
from armarium.capabilities.store.model import ROOT

MAX_PATH_LENGTH = 512
MAX_PROJECT_LENGTH = 128
MAX_QUERY_LENGTH = 8192
ALL_PROJECTS = "*"
"""All projects of the caller, where a search may go over them."""

_PROJECT = re.compile(r"[A-Za-z0-9_.-]+")
_PATH = re.compile(r"(/[A-Za-z0-9_.-]+)+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_PATH_HINT = "a path is like /notes/today.md: parts of A-Z a-z 0-9 _ - . behind slashes, none of them . or .."


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """How much may be written, and what of it is kept besides."""

    max_payload_bytes: int
    max_file_bytes: int
    max_project_bytes: int
    versions_kept: int
    """Earlier versions kept for each file; 0 keeps none."""
    searchable: bool
    """Whether changes are queued to be indexed."""


def checked_project(project: str) -> str:
    """The project's name, if it is one."""
    if not 1 <= len(project) <= MAX_PROJECT_LENGTH:
        raise InvalidPath(f"a project's name has 1 to {MAX_PROJECT_LENGTH} characters")
    if not _PROJECT.fullmatch(project) or project in {".", ".."}:
        raise InvalidPath("a project's name has only A-Z a-z 0-9 _ - . in it", hint="choose a name like my-notes")
    return project


def checked_path(path: str) -> str:
    """The path of a file or a directory; the empty one is the project's root."""
    if path == ROOT or (_PATH.fullmatch(path) and len(path) <= MAX_PATH_LENGTH and not _has_dots(path)):
        return path
    raise InvalidPath(_wrong_with(path), hint=_PATH_HINT)


def checked_inner_path(path: str) -> str:
    """The path of something that is not the root."""
    if path == ROOT:
        raise InvalidPath("the root of a project is not a file", hint=_PATH_HINT)
    return checked_path(path)


def parents_of(path: str) -> list[str]:
    """The directories a path lies in, without the root: `/a` and `/a/b` for `/a/b/c`."""
    return [path[:position] for position in range(1, len(path)) if path[position] == "/"]


def exactly(path: str) -> tuple[str, str]:
    """The half-open range of one path."""
    return path, path + "\x01"


def below(path: str) -> tuple[str, str]:
    """The half-open range of all paths below a directory: '0' follows '/'."""
    return path + "/", path + "0"


def name_of(path: str) -> str:
    """The last part of a path; nothing for the root."""
    return path.rpartition("/")[2]


def checked_content(content: str, encoding: str, limit: int) -> bytes:
    """The bytes to write. Only text is stored: what has no UTF-8, or holds NUL, which the index cannot keep, is not."""
    if encoding.lower() not in {"utf-8", "utf8"}:
        raise InvalidQuery("content_encoding must be utf-8", hint="leave it out; the store keeps text only")
    if len(content) > limit:
        raise _too_large(limit)
    try:
        written = content.encode()
    except UnicodeEncodeError:
        raise InvalidQuery("the content has half a character in it, which UTF-8 cannot write") from None
    if len(written) > limit:
        raise _too_large(limit)
    if b"\x00" in written:
        raise InvalidQuery("the content has a NUL character in it", hint="the store keeps text only")
    return written


def checked_number(name: str, value: int, least: int) -> int:
    """A number that is not too small."""
    if value < least:
        raise InvalidOffset(f"{name} must be at least {least}")
    return value


def checked_query(query: str) -> str:
    """The query without the space around it."""
    wanted = query.strip()
    if not wanted:
        raise InvalidQuery("the query is empty", hint="say in words what to look for")
    if len(wanted) > MAX_QUERY_LENGTH:
        raise InvalidQuery(f"the query has more than {MAX_QUERY_LENGTH} characters", hint="ask in fewer words")
    if "\x00" in wanted or re.search(r"[\ud800-\udfff]", wanted):
        raise InvalidQuery("the query has a character in it that is no text")
    return wanted


def checked_prefix(prefix: str) -> str:
    """What paths begin with: any characters, not necessarily whole parts of a path."""
    if len(prefix) > MAX_PATH_LENGTH:
        raise InvalidPath(f"path_prefix has more than {MAX_PATH_LENGTH} characters")
    if _CONTROL.search(prefix):
        raise InvalidPath("path_prefix has control characters in it")
    return prefix


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"one write takes at most {limit} bytes", hint="write it in parts, with mode APPEND")


def _has_dots(path: str) -> bool:
    return "/." in path and not {".", ".."}.isdisjoint(path.split("/"))


def _wrong_with(path: str) -> str:
    if len(path) > MAX_PATH_LENGTH:
        return f"a path has at most {MAX_PATH_LENGTH} characters"
    if not path.startswith("/"):
        return "a path must start with '/'"
    if path.endswith("/"):
        return "a path must not end with '/'"
    if "//" in path:
        return "a path must not have an empty part ('//')"
    if _has_dots(path):
        return "a path must not have '.' or '..' as a part"
    return "a path has only A-Z a-z 0-9 / _ - . in it"
