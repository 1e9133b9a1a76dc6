"""References to files across capabilities, such as `root://workspace/a.py`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class FileRef:
    """A reference to a file. The scheme identifies the capability, the space the root or project."""

    scheme: str
    space: str
    path: str

    def __str__(self) -> str:
        # Bytes that are not UTF-8 are surrogates in paths. They are percent-encoded like other bytes.
        space = quote(self.space, safe="", errors="surrogateescape")
        return f"{self.scheme}://{space}/{quote(self.path, safe='/ ', errors='surrogateescape')}"
