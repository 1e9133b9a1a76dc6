"""The server for tests of the sandbox: its roots, and a directory outside of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.server import ServerProcess
from support.trees import Picture, make_tree, picture

CANARY = "canary-7f3a91-of-the-outside"

ALLOWED: dict[str, list[str]] = {
    "workspace": ["*"],
    "source": ["*"],
    "dest": ["*"],
    "readonly": ["list_folder", "read_file"],
    "restricted": ["list_folder"],
    "config": ["list_folder", "read_file", "stat_file"],
    "logs": ["list_folder", "read_file", "stat_file", "grep"],
    "guarded": ["*"],
    "hiding": ["*"],
}
EXTRAS: dict[str, dict[str, Any]] = {
    "guarded": {"read_only": True},
    "hiding": {"ignore": ["*.secret", "private/", "/only-here.txt"]},
}


@dataclass(frozen=True)
class Box:
    """A running server, the directories of its roots, and a directory that no call may reach."""

    server: ServerProcess
    base: Path

    def root(self, name: str) -> Path:
        return self.base / "roots" / name

    @property
    def outside(self) -> Path:
        return self.base / "outside"

    @property
    def never_said(self) -> tuple[str, ...]:
        """What no result may contain: host paths, and content from outside."""
        return str(self.base), CANARY

    def outside_picture(self) -> Picture:
        return picture(self.outside)


def contract_config(base: Path, **settings: Any) -> dict[str, Any]:
    """The configuration of §7.1 with all roots that the cases need, and their directories."""
    roots = [
        {"name": name, "path": str(base / "roots" / name), "allowed_tools": tools, **EXTRAS.get(name, {})}
        for name, tools in ALLOWED.items()
    ]
    for root in roots:
        Path(str(root["path"])).mkdir(parents=True)
    return {"host": "127.0.0.1", "roots": roots, **settings}


def make_outside(base: Path) -> None:
    """Create a directory beside the roots with files that must not be read, changed or revealed."""
    files = {f"outside/{name}": f"{CANARY} in {name}\n" for name in ("secret.txt", "sub/file.txt", "sub/victim.txt")}
    make_tree(base, files)
