"""How a command talks: to a person or to a program, much or little, with questions or without."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Manner:
    """What the flags and the terminal say about it."""

    as_json: bool = False
    quiet: bool = False
    interactive: bool = False

    @property
    def log_level(self) -> str | None:
        """The log is for programs: a person sees only what is wrong."""
        return "warning" if self.quiet or sys.stderr.isatty() else None


def at_a_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stdout.isatty()
