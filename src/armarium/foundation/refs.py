"""References to files across capabilities, such as `root://workspace/a.py`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote


@dataclass(frozen=True, slots=True)
class FileRef:
    """A reference to a file. The scheme identifies the capability, the space the root or project."""

    scheme: str
    space: str
    path: str
    """Without a leading slash. Bytes that are not UTF-8 are surrogates, as in paths of the file system."""

    @classmethod
    def parse(cls, text: str) -> FileRef | None:
        """The reference that this text is; None if it is none."""
        scheme, separator, rest = text.partition("://")
        space, slash, path = (unquote(part, errors="surrogateescape") for part in rest.partition("/"))
        return cls(scheme, space, path) if scheme and separator and slash and path else None

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    def __str__(self) -> str:
        # Bytes that are not UTF-8 are percent-encoded like other bytes.
        space = quote(self.space, safe="", errors="surrogateescape")
        return f"{self.scheme}://{space}/{quote(self.path, safe='/ ', errors='surrogateescape')}"
