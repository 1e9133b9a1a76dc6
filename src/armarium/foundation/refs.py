"""How files are named across capabilities: `root://workspace/a.py`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote


@dataclass(frozen=True, slots=True)
class FileRef:
    """One file, wherever it lives: the scheme says which capability, the space which root or project."""

    scheme: str
    space: str
    path: str

    def __str__(self) -> str:
        # Paths may hold bytes that are no UTF-8, as surrogates; in a reference they are percent-encoded like others.
        space = quote(self.space, safe="", errors="surrogateescape")
        return f"{self.scheme}://{space}/{quote(self.path, safe='/ ', errors='surrogateescape')}"

    @classmethod
    def parse(cls, text: str) -> FileRef:
        """The reference written as `text`; ValueError when it is none."""
        scheme, separator, rest = text.partition("://")
        space, slash, path = rest.partition("/")
        if not (scheme and separator and space and slash):
            raise ValueError(f"not a file reference: {text!r}")
        return cls(scheme, unquote(space, errors="surrogateescape"), unquote(path, errors="surrogateescape"))
