"""Validation of projects, paths, content and numbers, with the error codes of the contract."""

from __future__ import annotations

import re

from armarium.capabilities.store.errors import InvalidOffset, InvalidPath, InvalidQuery, PayloadTooLarge
from armarium.capabilities.store.model import ROOT
from armarium.foundation.surrogates import has_unpaired_surrogate

MAX_PATH_LENGTH = 512
MAX_PROJECT_LENGTH = 128
MAX_QUERY_LENGTH = 8192
ALL_PROJECTS = "*"
"""Stands for all projects of the caller in a search or an export."""

_PROJECT = re.compile(r"[A-Za-z0-9_.-]+")
_PATH = re.compile(r"(/[A-Za-z0-9_.-]+)+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_PATH_HINT = "a path is like /notes/today.md: parts of A-Z a-z 0-9 _ - . behind slashes, none of them . or .."


def checked_project(project: str) -> str:
    if not 1 <= len(project) <= MAX_PROJECT_LENGTH:
        raise InvalidPath(f"a project's name has 1 to {MAX_PROJECT_LENGTH} characters")
    if not _PROJECT.fullmatch(project) or project in {".", ".."}:
        raise InvalidPath("a project's name may contain only A-Z a-z 0-9 _ - .", hint="choose a name like my-notes")
    return project


def checked_path(path: str) -> str:
    """The path of a file or a directory, if it is valid; the empty path is the project's root."""
    if path == ROOT or (_PATH.fullmatch(path) and len(path) <= MAX_PATH_LENGTH and not _has_dots(path)):
        return path
    raise InvalidPath(_wrong_with(path), hint=_PATH_HINT)


def checked_inner_path(path: str) -> str:
    if path == ROOT:
        raise InvalidPath("the root of a project is not a file", hint=_PATH_HINT)
    return checked_path(path)


def parents_of(path: str) -> list[str]:
    """The parent directories of a path, without the root: `/a` and `/a/b` for `/a/b/c`."""
    return [path[:position] for position in range(1, len(path)) if path[position] == "/"]


def exactly(path: str) -> tuple[str, str]:
    """The half-open range that contains only this path."""
    return path, path + "\x01"


def below(path: str) -> tuple[str, str]:
    """The half-open range of all paths below a directory: '0' follows '/'."""
    return path + "/", path + "0"


def name_of(path: str) -> str:
    """The last part of a path; empty for the root."""
    return path.rpartition("/")[2]


def checked_content(content: str, encoding: str, limit: int) -> bytes:
    """The bytes to write. Refuses text that UTF-8 cannot encode, and NUL, which the index cannot store."""
    if encoding.lower() not in {"utf-8", "utf8"}:
        raise InvalidQuery("content_encoding must be utf-8", hint="omit it; the store holds only text")
    if len(content) > limit:
        raise _too_large(limit)
    try:
        written = content.encode()
    except UnicodeEncodeError:
        raise InvalidQuery("the content contains an unpaired surrogate, which UTF-8 cannot encode") from None
    if len(written) > limit:
        raise _too_large(limit)
    if b"\x00" in written:
        raise InvalidQuery("the content contains a NUL character", hint="the store holds only text")
    return written


def checked_number(name: str, value: int, least: int) -> int:
    if value < least:
        raise InvalidOffset(f"{name} must be at least {least}")
    return value


def checked_query(query: str) -> str:
    """The query without surrounding white space, if it is valid."""
    wanted = query.strip()
    if not wanted:
        raise InvalidQuery("the query is empty", hint="describe in words what to search for")
    if len(wanted) > MAX_QUERY_LENGTH:
        raise InvalidQuery(f"the query has more than {MAX_QUERY_LENGTH} characters", hint="use fewer words")
    if "\x00" in wanted or has_unpaired_surrogate(wanted):
        raise InvalidQuery("the query contains a NUL character or an unpaired surrogate")
    return wanted


def checked_prefix(prefix: str) -> str:
    """The prefix of paths, if it is valid. It need not end at a slash."""
    if len(prefix) > MAX_PATH_LENGTH:
        raise InvalidPath(f"path_prefix has more than {MAX_PATH_LENGTH} characters")
    if _CONTROL.search(prefix):
        raise InvalidPath("path_prefix contains control characters")
    return prefix


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"one write has at most {limit} bytes", hint="write in parts, with mode APPEND")


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
        return "a path must not contain an empty part ('//')"
    if _has_dots(path):
        return "a path must not contain '.' or '..' as a part"
    return "a path may contain only A-Z a-z 0-9 / _ - ."
