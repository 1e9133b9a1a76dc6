"""Registers, changes, moves and removes file records, and generates ids. Each change adds an event to the timeline."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from armarium.capabilities.registry.storage import files, findings, timeline
from armarium.capabilities.registry.storage.columns import to_json
from armarium.capabilities.registry.storage.database import Writer
from armarium.capabilities.registry.storage.files import StoredFile
from armarium.capabilities.registry.storage.findings import OpenFinding
from armarium.capabilities.registry.storage.timeline import NewEvent

_BY_SUFFIX = {
    "bash": "shell", "c": "c", "cc": "cpp", "cfg": "ini", "clj": "clojure", "cpp": "cpp", "cs": "csharp", "css": "css",
    "cxx": "cpp", "dart": "dart", "ex": "elixir", "exs": "elixir", "erl": "erlang", "go": "go", "gradle": "groovy",
    "groovy": "groovy", "h": "c", "hcl": "hcl", "hh": "cpp", "hpp": "cpp", "hs": "haskell", "htm": "html",
    "html": "html", "ini": "ini", "ipynb": "jupyter", "java": "java", "jl": "julia", "js": "javascript",
    "json": "json", "jsx": "javascript", "kt": "kotlin", "kts": "kotlin", "lua": "lua", "m": "objective-c",
    "md": "markdown", "mjs": "javascript", "ml": "ocaml", "nim": "nim", "php": "php", "pl": "perl", "proto": "protobuf",
    "ps1": "powershell", "py": "python", "pyi": "python", "r": "r", "rb": "ruby", "rs": "rust", "rst": "rst",
    "scala": "scala", "scss": "scss", "sh": "shell", "sql": "sql", "svelte": "svelte", "swift": "swift",
    "tf": "hcl", "toml": "toml", "ts": "typescript", "tsx": "typescript", "vue": "vue", "xml": "xml", "yaml": "yaml",
    "yml": "yaml", "zig": "zig", "zsh": "shell",
}  # fmt: skip
_BY_NAME = {"dockerfile": "dockerfile", "makefile": "makefile", "gemfile": "ruby", "rakefile": "ruby"}

_ID_FORMS = {"file": ("f-", 5), "finding": ("sf-", 5), "issue": ("", 3)}
"""What follows the prefix, and the number of random bytes. The id of an issue is short enough to say aloud."""


class Ids:
    """Generates ids that are not in use."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def new(self, writer: Writer, kind: Literal["file", "finding", "issue"], count: int = 1) -> list[str]:
        mark, size = _ID_FORMS[kind]
        free: dict[str, None] = {}
        while len(free) < count:
            wanted = range(count - len(free))
            candidates = {f"{self._prefix}-{mark}{secrets.token_hex(size)}": None for _ in wanted}
            used = {row[0] for row in writer.rows(f"taken_{kind}_ids", (to_json(list(candidates)),))}
            free |= {each: None for each in candidates if each not in used}
            size += bool(used)
        return list(free)

    def judgement(self) -> str:
        return f"{self._prefix}-j-{secrets.token_hex(8)}"

    def scan_run(self) -> str:
        return f"{self._prefix}-run-{secrets.token_hex(8)}"


def register(
    writer: Writer,
    ids: Ids,
    path: str,
    actor: str,
    *,
    language: str | None = None,
    file_type: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> int:
    """Register the file at a canonical path, or change the given fields of its record. Returns its number."""
    stored = files.at(writer, path)
    if stored is None:
        [file_id] = ids.new(writer, "file")
        return files.insert(writer, file_id, path, language or language_of(path), file_type or "", metadata or {})
    given = {"language": language or None, "file_type": file_type or None, "metadata": metadata}
    changes = {name: value for name, value in given.items() if value is not None}
    _change(writer, stored, actor, changes)
    return stored.no


def remove(writer: Writer, stored: StoredFile, actor: str) -> None:
    """Mark a file as removed and its open findings as fixed. Its record and history remain."""
    still_open = findings.open_of_file(writer, stored.no)
    for source in dict.fromkeys(source for _, source in still_open):
        close(writer, [each for each, found_by in still_open if found_by == source], source, reason="file_removed")
    _change(writer, stored, actor, {}, removed_at=writer.now)


def move(writer: Writer, old_path: str, new_path: str, actor: str) -> int:
    """Move a file, or all files of a directory, and return how many. A file at the new path is removed first."""
    moving = files.at_or_below(writer, old_path) if old_path != new_path else []
    for stored in moving:
        path, language = stored.record["path"], stored.record["language"]
        target = new_path + path[len(old_path) :]
        replaced = files.at(writer, target)
        if replaced is not None and replaced.removed_at is None:
            remove(writer, replaced, actor)
        # A guessed language follows the new name; a given one stays.
        language = language_of(target) if language == language_of(path) else language
        _change(writer, stored, actor, {"path": target, "language": language})
    return len(moving)


def close(writer: Writer, fixed: Sequence[OpenFinding], source: str, **why: str) -> set[int]:
    """Mark findings as fixed. Returns the numbers of their files."""
    findings.set_status(writer, (each.no for each in fixed), "fixed")
    events = list[NewEvent]()
    for each in fixed:
        data = {"scan_source": source, "rule_id": each.rule_id, "severity": each.severity, "status": "fixed", **why}
        events.append(NewEvent(each.file_no, "finding_closed", each.id, data))
    timeline.append(writer, events)
    return {each.file_no for each in fixed}


def _change(
    writer: Writer, stored: StoredFile, actor: str, changes: Mapping[str, Any], removed_at: str | None = None
) -> None:
    before = {**stored.record, "removed": stored.removed_at is not None}
    after = {**before, **changes, "removed": removed_at is not None}
    events = list[NewEvent]()
    for name in ("removed", *changes):
        if before[name] != after[name]:
            data = {"field": name, "old_value": before[name], "new_value": after[name], "actor": actor}
            events.append(NewEvent(stored.no, "file_metadata_update", stored.record["id"], data))
    if events:
        files.update(writer, stored.no, after, removed_at)
        timeline.append(writer, events)


def language_of(path: str) -> str:
    """The language that a file name suggests, or ""."""
    name = path.rpartition("/")[2].lower()
    stem, dot, suffix = name.rpartition(".")
    return _BY_NAME.get(name) or (_BY_SUFFIX.get(suffix, "") if dot and stem else "")
