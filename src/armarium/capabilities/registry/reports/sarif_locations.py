"""Resolves the locations of a SARIF run to paths: URIs, their bases, and the table of artifacts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from armarium.capabilities.registry.reports.fields import array_in, as_object, index_in, object_in, text_in
from armarium.foundation.schema import Json

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
"""At least two letters: `C:` is a drive."""
_MAX_BASE_DEPTH = 20
_TARGET = "analysisTarget"
_SOURCE_ROOT = "%SRCROOT%"
_SOURCE_ROOTS = (_SOURCE_ROOT, "SRCROOT", "ROOTPATH", "PROJECTROOT")
"""The names of the base that is the project, by convention and in the reports of trivy and others."""


class Locations:
    """Resolves the locations of one run to paths, absolute or relative to the project."""

    def __init__(self, run: Json, at: str, prefixes: Mapping[str, str]) -> None:
        """`prefixes` are paths in the project for prefixes of the run's paths, or for its bases."""
        self._at = at
        self._prefixes = prefixes
        self._bases = object_in(run, "originalUriBaseIds", at)
        self._artifacts: list[Any] = array_in(run, "artifacts", at)

    def path(self, location: Json, at: str) -> str | None:
        """The path of a location; None if it is not a file of this machine."""
        if location.get("uri") is None:
            index = index_in(location, "index", at)
            if index is None or index >= len(self._artifacts):
                return None
            location, at = self._artifact_location(index)
        uri = text_in(location, "uri", at)
        return self._resolved(uri, text_in(location, "uriBaseId", at), at) or None

    def targets(self) -> list[str]:
        """The files that the run declares as scanned, with or without findings."""
        found: list[str] = []
        for index, each in enumerate(self._artifacts):
            at = f"{self._at}.artifacts[{index}]"
            if _TARGET in array_in(as_object(each, at), "roles", at):
                location, at = self._artifact_location(index)
                path = self.path(location, at) if location.get("uri") else None
                if path is not None:
                    found.append(path)
        return found

    def roots(self) -> list[str]:
        """The directories that the run declares as the root of its sources."""
        declared = [self._base(each, self._at, 0) for each in _SOURCE_ROOTS if each in self._bases]
        return [each for each in declared if each]

    def _artifact_location(self, index: int) -> tuple[Json, str]:
        at = f"{self._at}.artifacts[{index}]"
        return object_in(as_object(self._artifacts[index], at), "location", at), at

    def _resolved(self, uri: str, base_id: str, at: str, depth: int = 0) -> str | None:
        scheme = _SCHEME.fullmatch(uri)
        if scheme is not None:
            return _file_path(scheme[2]) if scheme[1].lower() == "file" else None
        first, _, rest = uri.partition("/")
        if first == _SOURCE_ROOT:
            # Some scanners write the name of the base into the address.
            uri, base_id = rest, _SOURCE_ROOT
        path = unquote(uri, errors="surrogateescape")
        # Bases may form a loop.
        base = self._base(base_id, at, depth) if base_id and depth < _MAX_BASE_DEPTH else ""
        return f"{base.rstrip('/')}/{path}" if base and not path.startswith("/") else path

    def _base(self, base_id: str, at: str, depth: int) -> str:
        """The directory of a base; the project if the run does not define it."""
        if base_id in self._prefixes:
            return self._prefixes[base_id]
        base = object_in(self._bases, base_id, f"{self._at}.originalUriBaseIds")
        path = self._resolved(text_in(base, "uri", at), text_in(base, "uriBaseId", at), at, depth + 1)
        # Trivy writes the root of the file system for the directory in which it was started.
        return "" if path is None or not path.strip("/") else path


def _file_path(rest: str) -> str | None:
    """The path in the rest of a `file:` URI; None if it names another machine."""
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            return None
        rest = slash + path
    return unquote(rest, errors="surrogateescape")
