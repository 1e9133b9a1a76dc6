"""Which paths do not exist for a caller: a root's ignore list, and the .gitignore files met on the way down."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import re2  # pyright: ignore[reportMissingTypeStubs] the package has no type information
from pathspec import GitIgnoreSpec

from armarium.foundation.errors import ConfigError
from armarium.foundation.files.errors import InvalidPattern

_RegexError = cast(type[Exception], cast(Any, re2).error)

GITIGNORE = ".gitignore"

_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_GITIGNORE_BYTES = 64 * 1024
_REMEMBERED_DIRECTORIES = 10_000
_PATTERNS_PER_SET = 200


class _Rules:
    """The lines of one file in gitignore syntax."""

    def __init__(self, lines: Sequence[str]) -> None:
        """Raise ValueError when a line cannot be read."""
        parts = [lines[start : start + _PATTERNS_PER_SET] for start in range(0, len(lines), _PATTERNS_PER_SET)]
        try:
            # RE2, because a .gitignore comes with the tree, and one line can keep a backtracking engine busy for hours.
            # In parts, because RE2 refuses to compile a set of several thousand patterns.
            self._specs = [GitIgnoreSpec.from_lines(part, backend="re2") for part in reversed(parts)]
        except (re.error, _RegexError) as error:
            raise ValueError(str(error)) from error

    @classmethod
    def readable(cls, lines: Sequence[str]) -> _Rules:
        """The rules of a file met in the tree: like git, overlook a line that cannot be read and obey the others."""
        try:
            return cls(lines)
        except ValueError:
            return cls([line for line in lines if _can_be_read(line)])

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


def _can_be_read(line: str) -> bool:
    try:
        _Rules([line])
    except ValueError:
        return False
    return True


class IgnoreRules:
    """Patterns as in a .gitignore at the root; what is below a hidden directory is hidden too."""

    def __init__(self, rules: _Rules) -> None:
        self._rules = rules
        self._hidden_directories: dict[str, bool] = {}

    @classmethod
    def from_lines(cls, patterns: Iterable[str]) -> IgnoreRules:
        """Compile the patterns; a later one overrides an earlier one, and `!` shows again what is hidden."""
        lines = list(patterns)
        try:
            return cls(_Rules(lines))
        except ValueError as error:
            faulty = next((line for line in lines if not _can_be_read(line)), "")
            raise InvalidPattern(f"invalid ignore pattern: {faulty or error}", pattern=faulty) from error

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
        text = _read_gitignore(directory_fd)
        if text is None:
            return self
        return GitIgnores((*self.scopes, (directory, _Rules.readable(text.splitlines()))))

    def hides_entry(self, path: str, is_directory: bool) -> bool:
        """Whether git would leave the path out, for a caller that came down through directories git would show."""
        if path.rpartition("/")[2] == ".git":
            return True
        for directory, rules in reversed(self.scopes):
            verdict = rules.verdict(path[len(directory) :], is_directory)
            if verdict is not None:
                return verdict
        return False


def _read_gitignore(directory_fd: int) -> str | None:
    try:
        fd = os.open(GITIGNORE, _OPEN_FILE, dir_fd=directory_fd)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        return os.read(fd, _MAX_GITIGNORE_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(fd)
