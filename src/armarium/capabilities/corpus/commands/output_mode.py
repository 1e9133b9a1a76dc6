"""How a command communicates: as text or JSON, quietly or not, with prompts or without."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OutputMode:
    """The output flags, and whether the command may prompt."""

    as_json: bool = False
    quiet: bool = False
    interactive: bool = False

    @property
    def log_level(self) -> str | None:
        """The default log level of the command; None for that of the settings. A terminal shows only warnings."""
        return "warning" if self.quiet or sys.stderr.isatty() else None


def at_a_terminal() -> bool:
    """Whether standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()
