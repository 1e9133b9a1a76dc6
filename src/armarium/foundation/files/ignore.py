"""Which paths do not exist for a caller: a root's ignore list, and the .gitignore files met on the way down."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import re2  # pyright: ignore[reportMissingTypeStubs] the package has no type information
from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from armarium.foundation.errors import ConfigError
from armarium.foundation.files.errors import InvalidPattern

_log = logging.getLogger(__name__)

_RegexError = cast(type[Exception], cast(Any, re2).error)

GITIGNORE = ".gitignore"

_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_GITIGNORE_BYTES = 64 * 1024
_REMEMBERED_DIRECTORIES = 10_000
_PATTERNS_PER_SET = 1000


class _Uncompiled(NamedTuple):
    """Looks to pathspec like a compiled expression. RE2 needs only the text, and `re` takes most of the time."""

    pattern: str
    match: None = None


class _Rules:
    """The lines of one file in gitignore syntax."""

    def __init__(self, lines: Sequence[str], *, overlook_faults: bool = False) -> None:
        """Raise `_FaultyLine` when a line cannot be read; or, like git, overlook it and obey the others."""
        self._specs: list[GitIgnoreSpec] = []
        for start in reversed(range(0, len(lines), _PATTERNS_PER_SET)):
            self._add(lines[start : start + _PATTERNS_PER_SET], overlook_faults)

    def _add(self, lines: Sequence[str], overlook_faults: bool) -> None:
        try:
            # RE2, because a .gitignore comes with the tree, and one line can keep a backtracking engine busy for hours.
            spec = GitIgnoreSpec.from_lines(lines, _pattern, backend="re2")
        except (ValueError, _RegexError) as error:
            # A line that cannot be read, or more than RE2 takes at once; it does not say which.
            if len(lines) > 1:
                middle = len(lines) // 2
                self._add(lines[middle:], overlook_faults)
                self._add(lines[:middle], overlook_faults)
            elif not overlook_faults:
                raise _FaultyLine(lines[0]) from error
        else:
            self._specs.append(spec)

    def verdict(self, path: str, is_directory: bool) -> bool | None:
        """True: hidden; False: expressly shown; None: no line speaks about it. Parents are not looked at."""
        if not path.isascii() or "\n" in path:
            # RE2 takes UTF-8 only, and "." stops at a line end: neither may let a name slip past a pattern.
            path = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\n", "\ufffd")
        for spec in self._specs:
            hidden = spec.check_file(path + "/" if is_directory else path).include
            if hidden is not None:
                return hidden
        return None


def lines_hiding(private_paths: Iterable[Path], root: str) -> list[str]:
    """What hides the server's own of these paths, where it lies inside a root: whoever serves a home directory does
    not mean that."""
    lines: list[str] = []
    for private in private_paths:
        inside = os.path.relpath(os.path.realpath(private), os.path.realpath(os.path.expanduser(root)))
        if inside == ".":
            raise ConfigError(f"{root} is kept by the server for itself", hint="serve another directory")
        if inside != ".." and not inside.startswith("../"):
            lines.append("/" + re.sub(r"([\\*?\[ ])", r"\\\1", inside))
    return lines


def _pattern(line: str) -> GitIgnoreSpecPattern:
    regex, shows_or_hides = GitIgnoreSpecPattern.pattern_to_regex(line)
    if regex is None:
        return GitIgnoreSpecPattern(None)
    return GitIgnoreSpecPattern(cast(Any, _Uncompiled(regex)), shows_or_hides)


class _FaultyLine(Exception):
    """The line that cannot be read is the argument."""


class IgnoreRules:
    """Patterns as in a .gitignore at the root; what is below a hidden directory is hidden too."""

    def __init__(self, rules: _Rules) -> None:
        self._rules = rules
        self._hidden_directories: dict[str, bool] = {}

    @classmethod
    def from_lines(cls, patterns: Iterable[str]) -> IgnoreRules:
        """Compile the patterns; a later one overrides an earlier one, and `!` shows again what is hidden."""
        try:
            return cls(_Rules(list(patterns)))
        except _FaultyLine as error:
            faulty: str = error.args[0]
            raise InvalidPattern(f"invalid ignore pattern: {faulty}", pattern=faulty) from error

    def hides(self, path: str, is_directory: bool) -> bool:
        """Whether the path, relative to the root, or any directory above it is hidden."""
        return self._in_hidden_directory(path) or self.hides_entry(path, is_directory)

    def hides_entry(self, path: str, is_directory: bool) -> bool:
        """Whether the path itself is hidden, for a caller that came down through visible directories."""
        return bool(self._rules.verdict(path, is_directory))

    def _in_hidden_directory(self, path: str) -> bool:
        parent, slash, _ = path.rpartition("/")
        if not slash:
            return False
        known = self._hidden_directories.get(parent)
        if known is None:
            if len(self._hidden_directories) >= _REMEMBERED_DIRECTORIES:
                self._hidden_directories.clear()
            steps = [index for index, char in enumerate(parent) if char == "/"] + [len(parent)]
            known = any(self.hides_entry(parent[:step], True) for step in steps)
            self._hidden_directories[parent] = known
        return known


@dataclass(frozen=True, slots=True)
class GitIgnores:
    """The .gitignore files that speak about one directory. Git's other exclude files are not read."""

    scopes: tuple[tuple[str, _Rules], ...] = ()
    """Directory ("" or ending in "/") and rules of each file, the deepest last."""

    @classmethod
    def above(cls, root_fd: int, path: str) -> GitIgnores:
        """What the .gitignore files of the root and of the directories down to `path` say, `path` itself left out."""
        ignores = cls()
        if not path:
            return ignores
        fd = os.open(".", _OPEN_DIRECTORY, dir_fd=root_fd)
        directory = ""
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
        """These rules, and those of the .gitignore in the directory if it has one."""
        text = _read_gitignore(directory_fd, directory)
        if text is None:
            return self
        return GitIgnores((*self.scopes, (directory, _Rules(text.splitlines(), overlook_faults=True))))

    def hides_entry(self, path: str, is_directory: bool) -> bool:
        """Whether git would leave the path out, for a caller that came down through directories git would show."""
        if path.rpartition("/")[2] == ".git":
            return True
        for directory, rules in reversed(self.scopes):
            verdict = rules.verdict(path[len(directory) :], is_directory)
            if verdict is not None:
                return verdict
        return False


def _read_gitignore(directory_fd: int, directory: str) -> str | None:
    try:
        fd = os.open(GITIGNORE, _OPEN_FILE, dir_fd=directory_fd)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        content = os.read(fd, _MAX_GITIGNORE_BYTES)
        if b"\0" in content:
            # Any byte is a pattern, and a single "*" among them would hide everything.
            _warn_of_binary_file(status.st_dev, status.st_ino, directory)
            return None
        return content.decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(fd)


@lru_cache(maxsize=1000)
def _warn_of_binary_file(device: int, inode: int, directory: str) -> None:
    """Once for each file, not once for each search."""
    path = f"{directory}{GITIGNORE}".encode("utf-8", "backslashreplace").decode()
    _log.warning("a .gitignore is not text and is left out of account", extra={"path": path})
