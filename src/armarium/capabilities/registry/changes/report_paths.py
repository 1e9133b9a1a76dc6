"""Finds the files of the project that a report means, also if the scanner ran on another machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import unquote

from armarium.capabilities.registry.paths import FILE_SCHEME, ProjectPaths, is_absolute
from armarium.capabilities.registry.storage.columns import has_unprintable

_MAX_TRIED = 200
"""How many paths are looked for in the project, to detect where it was on the other machine."""

_MAX_NAMES = 32
"""How many directories deep a project is searched."""


class ReportPaths:
    """Converts the paths of one report to canonical ones.

    Absolute paths outside the project are translated: by the prefixes that the caller maps, by the prefix without which
    most of them exist in the project, or by the directories that the report declares as the project."""

    def __init__(
        self, paths: ProjectPaths, named: Iterable[str], prefixes: Mapping[str, str], roots: Sequence[str]
    ) -> None:
        self._paths = paths
        self._prefixes = {_prefix(prefix): path.strip("/") for prefix, path in prefixes.items()}
        foreign = {_plain(path): None for path in named if self._is_foreign(path) and not has_unprintable(path)}
        detected = _detected_prefix(paths, [*foreign]) if foreign else None
        self._fallbacks = [_prefix(_plain(root)) for root in roots] if detected is None else [detected]

    def canonical(self, path: str) -> str:
        return self._paths.canonical(self._relative(path))

    def covered(self, path: str) -> str:
        return self._paths.covered(self._relative(path))

    def _relative(self, path: str) -> str:
        plain = _plain(path)
        if (mapped := self._mapped(plain)) is not None:
            return mapped
        if self._is_foreign(path):
            for prefix in self._fallbacks:
                if _is_below(plain, prefix):
                    return plain[len(prefix) :].lstrip("/") or "."
        return self._paths.relative(path)

    def _mapped(self, plain: str) -> str | None:
        fitting = [prefix for prefix in self._prefixes if _is_below(plain, prefix)]
        if not fitting:
            return None
        prefix = max(fitting, key=len)
        return "/".join(filter(None, (self._prefixes[prefix], plain[len(prefix) :].lstrip("/")))) or "."

    def _is_foreign(self, path: str) -> bool:
        return is_absolute(path) and is_absolute(self._paths.relative(path)) and self._mapped(_plain(path)) is None


def names_it_may_have(path: str) -> Iterator[str]:
    """The paths below the project that a path of another machine may mean, the longest first."""
    names = _plain(path).strip("/").split("/")
    for start in range(max(0, len(names) - _MAX_NAMES), len(names)):
        yield "/".join(names[start:])


def _detected_prefix(paths: ProjectPaths, foreign: Sequence[str]) -> str | None:
    """Where the project was on the other machine: the prefix without which most paths exist here. None if they do not
    agree, or if only the names of a few files fit."""
    tried = sorted(foreign)[:: -(-len(foreign) // _MAX_TRIED)]
    found: Counter[str] = Counter()
    only_name: Counter[str] = Counter()
    for path in tried:
        for rest in names_it_may_have(path):
            if ".." not in rest.split("/") and paths.exists(rest):
                prefix = path[: len(path) - len(rest)].rstrip("/")
                found[prefix] += 1
                only_name[prefix] += "/" not in rest
                break
    if not found:
        return None
    [(best, count)] = found.most_common(1)
    is_convincing = only_name[best] < count or 2 * count > len(tried)
    return best if 2 * count > found.total() and is_convincing else None


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")


def _prefix(text: str) -> str:
    return _plain(text).rstrip("/")


def _plain(path: str) -> str:
    """The path with slashes, without a `file:` scheme, and without the slash before a drive."""
    if path[: len(FILE_SCHEME)].lower() == FILE_SCHEME:
        path = unquote(path[len(FILE_SCHEME) :], errors="surrogateescape")
        path = path if not path.startswith("//") else f"/{path[2:].partition('/')[2]}"
    if is_absolute(path) and not path.startswith("/"):
        path = path.replace("\\", "/")
    if path[2:3] == ":" and path.startswith("/"):
        return path[1:]
    return path
