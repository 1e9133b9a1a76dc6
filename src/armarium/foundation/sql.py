"""Loads named SQL statements from files."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def queries(package: str, file: str = "queries.sql") -> dict[str, str]:
    """The statements of a file in `package`, by name. Each begins with a line `-- name: <name>`."""
    text = (files(package) / file).read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    named = {name: statement.strip() for name, statement in zip(parts[::2], parts[1::2], strict=True)}
    assert len(named) == len(parts) // 2, f"a name is used twice in {package}/{file}"
    return named
