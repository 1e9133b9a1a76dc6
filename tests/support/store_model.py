"""A dictionary that behaves as the store must, for tests that compare the two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MAX_FILE = 40
PATHS = ["/a", "/a-b", "/a.b", "/a/b", "/a/b/c", "/a/b-c", "/d", "/d/e", "/d/e/f"]


class Refused(Exception):
    """What the model expects to be refused, with the code."""


class Model:
    """What the contract says, over one dictionary."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def below(self, path: str) -> list[str]:
        return sorted(file for file in self.files if file.startswith(path + "/"))

    def kind(self, path: str) -> str:
        return "FILE" if path in self.files else "DIRECTORY" if self.below(path) else ""

    def lies_below_file(self, path: str) -> bool:
        return any(path.startswith(file + "/") for file in self.files)

    def write(self, path: str, content: bytes, mode: str, offset: int) -> int:
        if mode == "TRUNCATE" and offset:
            raise Refused("INVALID_OFFSET")
        if self.below(path):
            raise Refused("IS_DIRECTORY")
        if self.lies_below_file(path):
            raise Refused("NOT_DIRECTORY")
        old = self.files.get(path, b"")
        if mode == "APPEND":
            new = old + content
        elif mode == "TRUNCATE":
            new = content
        else:
            if offset > len(old):
                raise Refused("INVALID_OFFSET")
            new = old[:offset] + content + old[offset + len(content) :]
            try:
                new.decode()
            except UnicodeDecodeError:
                raise Refused("INVALID_OFFSET") from None
        if len(new) > MAX_FILE:
            raise Refused("PAYLOAD_TOO_LARGE")
        self.files[path] = new
        return len(content)

    def delete(self, path: str, recursive: bool) -> int:
        if path == "":
            raise Refused("PERMISSION_DENIED" if recursive else "INVALID_PATH")
        if path in self.files:
            gone = [path]
        elif not (gone := self.below(path)):
            raise Refused("NOT_FOUND")
        elif not recursive:
            raise Refused("NOT_EMPTY")
        for file in gone:
            del self.files[file]
        return len(gone)

    def rename(self, source: str, target: str, overwrite: bool) -> int:
        if source == target:
            return 0
        is_file, moving = source in self.files, [source] if source in self.files else self.below(source)
        if not moving:
            raise Refused("NOT_FOUND")
        if not is_file and target.startswith(source + "/"):
            raise Refused("INVALID_PATH")
        if self.lies_below_file(target):
            raise Refused("NOT_DIRECTORY")
        if self.below(target) or (target in self.files and not (is_file and overwrite)):
            raise Refused("ALREADY_EXISTS")
        moved = {target + file.removeprefix(source): self.files.pop(file) for file in moving}
        self.files |= moved
        return len(moved)

    def read(self, path: str, offset: int, length: int) -> bytes:
        if path not in self.files:
            raise Refused("IS_DIRECTORY" if self.below(path) else "NOT_FOUND")
        content = self.files[path]
        return content[offset:] if length < 0 else content[offset : offset + length]

    def list(self, path: str, depth: int) -> list[tuple[str, str]]:
        kind = self.kind(path)
        if path and not kind:
            raise Refused("NOT_FOUND")
        if depth == 0:
            return [(path, kind)] if kind else []
        if kind == "FILE":
            raise Refused("NOT_DIRECTORY")
        entries: set[tuple[str, str]] = set()
        for file in self.below(path):
            names = file.removeprefix(path).split("/")[1:]
            entries |= {(f"{path}/{'/'.join(names[:level])}", "DIRECTORY") for level in range(1, len(names))}
            entries.add((file, "FILE"))
        return sorted(entry for entry in entries if entry[0].removeprefix(path).count("/") <= depth)


def answer_or_refusal(expected: Callable[[], Any]) -> Any:
    """What the model says, also when it says no."""
    try:
        return expected()
    except Refused as refused:
        return refused
