"""Names and reads files of this server as their caller may: through the tools that read them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from armarium.capabilities.gateway.errors import FileChangedMeanwhile, FileTooLarge
from armarium.foundation.errors import ArmariumError, UnknownTool
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call

_PIECE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Reader:
    """A tool that reads files, and the names of its arguments and results. Capabilities do not know each other, but a
    caller may use any tool; so the policy for the file is checked, and its reading recorded, as for any other call."""

    tool: str
    space: str
    """The argument for the root or project."""
    offset: str
    length: str
    prefix: str = ""
    """What the tool's paths have before the path of a reference."""


_READERS: Final[Mapping[str, _Reader]] = {
    "root": _Reader("read_file", "root", "offset_bytes", "limit_bytes"),
    "store": _Reader("file_read", "project", "offset", "length", prefix="/"),
}
"""By the scheme of a reference."""
_LIST_ROOTS: Final = "list_roots"


@dataclass(frozen=True, slots=True)
class NamedFile:
    scheme: str
    space: str
    path: str

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rstrip("/").rpartition("/")[2]


def parse_reference(text: str) -> NamedFile | None:
    """The file of a reference such as `root://work/a.csv` or `store://notes/a.md`; None for any other text."""
    scheme, separator, rest = text.partition("://")
    space, slash, path = rest.partition("/")
    if not separator or not slash or scheme not in _READERS or not space or not path:
        return None
    return NamedFile(scheme, unquote(space), unquote(path))


async def file_in_root(call: Call, text: str) -> NamedFile | None:
    """The file that `<root>/<path>` names, if the caller has a root of that name."""
    root, slash, path = text.partition("/")
    if not slash or not root or not path or "://" in text:
        return None
    try:
        roots = (await _run(call, _LIST_ROOTS, {}))["roots"]
    except ArmariumError:
        return None
    return NamedFile("root", root, path) if any(each["name"] == root for each in roots) else None


async def file_size(call: Call, file: NamedFile) -> int:
    """The size of a file in bytes. Raises what the reading tool does if the caller may not read it."""
    _, size = await _read(call, file, 0, 1)
    return size


async def read_file(call: Call, file: NamedFile, max_bytes: int) -> bytes:
    """The content of a file. Raises if it is too large, or changes while it is read."""
    content = bytearray()
    first_size: int | None = None
    while first_size is None or len(content) < first_size:
        piece, size = await _read(call, file, len(content), _PIECE_BYTES)
        first_size = size if first_size is None else first_size
        check_size(size, max_bytes)
        if size != first_size or (not piece and len(content) < size):
            raise FileChangedMeanwhile("the file changed while it was read", hint="try again")
        content += piece
    return bytes(content)


def check_size(size: int, max_bytes: int) -> None:
    """Raise if a file is too large for a download."""
    if size > max_bytes:
        raise FileTooLarge(
            f"the file has {size} bytes, more than {max_bytes}", hint="name a smaller file", size=size, limit=max_bytes
        )


async def _read(call: Call, file: NamedFile, offset: int, length: int) -> tuple[bytes, int]:
    reader = _READERS[file.scheme]
    arguments = {
        reader.space: file.space,
        "path": reader.prefix + file.path,
        reader.offset: offset,
        reader.length: length,
    }
    found = await _run(call, reader.tool, arguments)
    text: str = found["content"]
    return base64.b64decode(text) if found.get("encoding") == "base64" else text.encode(), found["size"]


async def _run(call: Call, tool: str, arguments: Mapping[str, Any]) -> Json:
    result, error = await call.run_tool(tool, arguments)
    if error is not None:
        raise error
    return result["structuredContent"]


def is_served(error: ArmariumError) -> bool:
    """Whether the endpoint of the call has the tool that reads the file."""
    return not isinstance(error, UnknownTool)
