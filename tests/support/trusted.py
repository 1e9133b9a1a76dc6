"""Trusts the settings that a test wrote into a directory, as their user would."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from armarium.surfaces.cli.main import run


def trust(directory: Path, environ: Mapping[str, str]) -> None:
    """Run `armarium trust add`, in this process."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", environ["XDG_STATE_HOME"])
        assert run(["trust", "add", str(directory)]) == 0
