"""Opens documents that are zip files, and refuses those that were built to exhaust their reader."""

from __future__ import annotations

import io
import posixpath
from xml.etree import ElementTree

from armarium.foundation.archives.entries import ENCRYPTED, ArchiveError, Budget
from armarium.foundation.archives.zip import zip_entries
from armarium.retrieval.chunks import ExtractLimits
from armarium.retrieval.errors import ExtractFailed

_OLE = b"\xd0\xcf\x11\xe0"
_RATIO_APPLIES_FROM_BYTES = 16 * 1024 * 1024
_ENTITIES = tuple("<!ENTITY".encode(encoding) for encoding in ("ascii", "utf-16-le", "utf-16-be"))
_RELATIONSHIP = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"


class Package:
    """A zipped document. Its sizes are checked as declared when it opens, and as read with every part."""

    def __init__(self, data: bytes, limits: ExtractLimits) -> None:
        if data.startswith(_OLE):
            raise ExtractFailed("the document is under a password or of a format from before 2007")
        budget = Budget(content_bytes=limits.max_unpacked_bytes)
        try:
            entries = zip_entries(io.BytesIO(data), budget, limits.max_parts)
            self._parts = {entry.name: entry for entry in entries}
        except ArchiveError as error:
            raise ExtractFailed(f"the document is not a readable zip file: {error}") from error
        self._limits = limits
        if len(self._parts) > limits.max_parts:
            raise ExtractFailed("the document has too many parts", parts=len(self._parts))
        if any(part.problem == ENCRYPTED for part in self._parts.values()):
            raise ExtractFailed("the document is under a password")
        unpacked = sum(part.size_bytes for part in self._parts.values())
        if unpacked > limits.max_unpacked_bytes or (
            unpacked > _RATIO_APPLIES_FROM_BYTES and unpacked > len(data) * limits.max_ratio
        ):
            raise ExtractFailed("the document unpacks to far more than it should", unpacked_bytes=unpacked)

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    def read(self, name: str) -> bytes:
        """One part. A part that is larger or smaller than declared is refused."""
        if (part := self._parts.get(name)) is None:
            raise ExtractFailed("a part of the document is missing")
        if part.problem is not None:
            raise ExtractFailed(f"a part of the document cannot be read: {part.problem}")
        if part.size_bytes > self._limits.max_part_bytes:
            raise ExtractFailed("the document unpacks to far more than it should")
        try:
            return part.read()
        except ArchiveError as error:
            raise ExtractFailed(f"a part of the document cannot be read: {error}") from error

    def xml(self, name: str) -> ElementTree.Element:
        """One part, parsed. No part of an office document or a book declares entities, except to explode."""
        content = self.read(name)
        _refuse_entities(content)
        return ElementTree.fromstring(content)  # noqa: S314 entities, the danger meant, were refused above

    def check_every_part(self) -> None:
        """Holds all parts to the rules of `read` and `xml`, for a library that will open the document by itself."""
        for name in self._parts:
            _refuse_entities(self.read(name))

    def related(self, part: str) -> dict[str, tuple[str, str]]:
        """What a part of an office document points to: id → (kind, name of the part it points to)."""
        folder, base = posixpath.split(part)
        relations = posixpath.join(folder, "_rels", f"{base}.rels")
        if relations not in self:
            return {}
        return {
            relation.get("Id", ""): (
                relation.get("Type", "").rpartition("/")[2],
                posixpath.normpath(posixpath.join("/", folder, relation.get("Target", ""))).lstrip("/"),
            )
            for relation in self.xml(relations).iter(_RELATIONSHIP)
            if relation.get("TargetMode") != "External"
        }

    def related_part(self, part: str, kind: str) -> str | None:
        """The part of that kind another one points to, when it is there."""
        named = (target for related_kind, target in self.related(part).values() if related_kind == kind)
        return next((target for target in named if target in self), None)

    def main_part(self) -> str:
        """The part an office document begins with."""
        if (main := self.related_part("", "officeDocument")) is None:
            raise ExtractFailed("the document has no main part")
        return main

    def title(self) -> str | None:
        if (properties := self.related_part("", "core-properties")) is None:
            return None
        return (self.xml(properties).findtext(_TITLE) or "").strip() or None


def _refuse_entities(content: bytes) -> None:
    if any(mark in content for mark in _ENTITIES):
        raise ExtractFailed("the document declares XML entities")
