"""Ignore rules in .gitignore syntax: the ignore list of a root, and .gitignore files in the tree."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

import re2  # pyright: ignore[reportMissingTypeStubs] the package has no type information
from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from armarium.foundation.files.beneath import closed_after
from armarium.foundation.files.errors import InvalidPattern

_log = logging.getLogger(__name__)

_RegexError = cast(type[Exception], cast(Any, re2).error)

GITIGNORE = ".gitignore"

_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_GITIGNORE_BYTES = 64 * 1024
_MAX_CACHED_DIRECTORIES = 10_000
_PATTERNS_PER_SET = 1000


class _Uncompiled(NamedTuple):
    """Stands in for a compiled expression in pathspec. RE2 needs only the text, and compiling with `re` is slow."""

    pattern: str
    match: None = None


class _Rules:
    """The rules of one file in gitignore syntax."""

    def __init__(self, lines: Sequence[str], *, skip_invalid: bool = False) -> None:
        """Raise `InvalidPattern` for an invalid line, or with `skip_invalid` skip it, as git does."""
        self._specs: list[GitIgnoreSpec] = []
        for start in reversed(range(0, len(lines), _PATTERNS_PER_SET)):
            self._add(lines[start : start + _PATTERNS_PER_SET], skip_invalid)

    def _add(self, lines: Sequence[str], skip_invalid: bool) -> None:
        try:
            # RE2, because .gitignore files are untrusted: one line can keep a backtracking engine busy for hours.
            spec = GitIgnoreSpec.from_lines(lines, _pattern, backend="re2")
        except (ValueError, _RegexError) as error:
            # An invalid line, or more than RE2 can compile at once; the error does not say which.
            if len(lines) > 1:
                middle = len(lines) // 2
                self._add(lines[middle:], skip_invalid)
                self._add(lines[:middle], skip_invalid)
            elif not skip_invalid:
                raise InvalidPattern(f"invalid ignore pattern: {lines[0]}", pattern=lines[0]) from error
        else:
            self._specs.append(spec)

    def verdict(self, path: str, is_directory: bool) -> bool | None:
        """True: hidden; False: explicitly shown; None: no rule matches. Parent directories are not checked."""
        if not path.isascii() or "\n" in path:
            # RE2 accepts only UTF-8, and "." does not match a line feed: neither may let a name bypass a pattern.
            path = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\n", "\ufffd")
        for spec in self._specs:
            hidden = spec.check_file(path + "/" if is_directory else path).include
            if hidden is not None:
                return hidden
        return None


def _pattern(line: str) -> GitIgnoreSpecPattern:
    regex, shows_or_hides = GitIgnoreSpecPattern.pattern_to_regex(line)
    if regex is None:
        return GitIgnoreSpecPattern(None)
    return GitIgnoreSpecPattern(cast(Any, _Uncompiled(regex)), shows_or_hides)


class IgnoreRules:
    """The ignore list of a root, with the semantics of a .gitignore at its top. Everything below a hidden directory is
    hidden."""

    def __init__(self, rules: _Rules) -> None:
        self._rules = rules
        self._hidden_directories: dict[str, bool] = {}

    @classmethod
    def from_lines(cls, patterns: Iterable[str]) -> IgnoreRules:
        """Compile the patterns. Later ones override earlier ones, and `!` shows hidden paths again."""
        return cls(_Rules(list(patterns)))

    def hides(self, path: str, is_directory: bool) -> bool:
        """Whether the path, relative to the root, or any directory above it is hidden."""
        return self.in_hidden_directory(path) or self.hides_entry(path, is_directory)

    def hides_entry(self, path: str, is_directory: bool) -> bool:
        """Whether the path itself is hidden, if its parent directories are known to be visible."""
        return bool(self._rules.verdict(path, is_directory))

    def in_hidden_directory(self, path: str) -> bool:
        parent, slash, _ = path.rpartition("/")
        if not slash:
            return False
        known = self._hidden_directories.get(parent)
        if known is None:
            if len(self._hidden_directories) >= _MAX_CACHED_DIRECTORIES:
                self._hidden_directories.clear()
            steps = [index for index, char in enumerate(parent) if char == "/"] + [len(parent)]
            known = any(self.hides_entry(parent[:step], True) for step in steps)
            self._hidden_directories[parent] = known
        return known


@dataclass(frozen=True, slots=True)
class GitIgnores:
    """The rules of all .gitignore files that apply to a directory. Git's other exclude files are not read."""

    scopes: tuple[tuple[str, _Rules], ...] = ()
    """Directory ("" or ending in "/") and rules of each file, the deepest last."""

    @classmethod
    def above(cls, root_fd: int, path: str) -> GitIgnores:
        """The .gitignore files of the root and of the directories above `path`."""
        ignores, directory = cls(), ""
        if not path:
            return ignores
        fd = os.open(".", _OPEN_DIRECTORY, dir_fd=root_fd)
        try:
            for name in path.split("/"):
                ignores = ignores.entering(fd, directory)
                child = os.open(name, _OPEN_DIRECTORY, dir_fd=fd)
                os.close(fd)
                fd, directory = child, f"{directory}{name}/"
        except OSError:
            return ignores
        finally:
            os.close(fd)
        return ignores

    def entering(self, directory_fd: int, directory: str) -> GitIgnores:
        """These rules with those of the directory's own .gitignore, if it has one."""
        text = _read_gitignore(directory_fd, directory)
        if text is None:
            return self
        return GitIgnores((*self.scopes, (directory, _Rules(text.splitlines(), skip_invalid=True))))

    def hides_entry(self, path: str, is_directory: bool) -> bool:
        """Whether git ignores the path, if its parent directories are known not to be ignored."""
        if path.rpartition("/")[2] == ".git":
            return True
        for directory, rules in reversed(self.scopes):
            verdict = rules.verdict(path[len(directory) :], is_directory)
            if verdict is not None:
                return verdict
        return False


def _read_gitignore(directory_fd: int, directory: str) -> str | None:
    with suppress(OSError), closed_after(os.open(GITIGNORE, _OPEN_FILE, dir_fd=directory_fd)) as fd:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        content = os.read(fd, _MAX_GITIGNORE_BYTES)
        if b"\0" not in content:
            return content.decode("utf-8", "replace")
        # Random bytes could be patterns, and a single "*" would hide everything.
        _warn_of_binary_file(status.st_dev, status.st_ino, directory)
    return None


@lru_cache(maxsize=1000)
def _warn_of_binary_file(device: int, inode: int, directory: str) -> None:
    """Log once for each file, not for each search."""
    path = f"{directory}{GITIGNORE}".encode("utf-8", "backslashreplace").decode()
    _log.warning("a .gitignore is not text and is ignored", extra={"path": path})
