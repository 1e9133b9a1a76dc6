"""The life of a file's record: registered, changed, renamed, removed, back again; each change is an event."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from armarium.capabilities.registry.changes.ids import Ids
from armarium.capabilities.registry.storage import files, findings, timeline
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
    """The number of the file at a canonical path, which from now on has what is given; what is not given stays."""
    stored = files.at(writer, path)
    if stored is None:
        file_id = ids.file(writer)
        return files.insert(writer, file_id, path, language or language_of(path), file_type or "", metadata or {})
    given = {"language": language or None, "file_type": file_type or None, "metadata": metadata}
    changes = {name: value for name, value in given.items() if value is not None}
    _change(writer, stored, actor, removed_at=None, **changes)
    return stored.no


def remove(writer: Writer, stored: StoredFile, actor: str) -> None:
    """The file is gone: what was found in it is fixed, and what is known of it stays."""
    still_open = findings.open_of_file(writer, stored.no)
    for source in dict.fromkeys(source for _, source in still_open):
        close(writer, (each for each, found_by in still_open if found_by == source), source, reason="file_removed")
    _change(writer, stored, actor, removed_at=writer.now)


def move(writer: Writer, old_path: str, new_path: str, actor: str) -> int:
    """Give the file at a path, or all below a directory, another path; how many. A file in the way is removed."""
    moving = files.at_or_below(writer, old_path) if old_path != new_path else []
    for stored in moving:
        target = new_path + stored.record.path[len(old_path) :]
        in_the_way = files.at(writer, target)
        if in_the_way is not None and in_the_way.record.removed_at is None:
            remove(writer, in_the_way, actor)
        # What was guessed from the old name is guessed anew; what somebody said stays.
        guessed = stored.record.language == language_of(stored.record.path)
        language = language_of(target) if guessed else stored.record.language
        _change(writer, stored, actor, path=target, language=language)
    return len(moving)


def close(writer: Writer, fixed: Iterable[OpenFinding], source: str, **why: str) -> set[int]:
    """Findings that are there no more are fixed; the numbers of their files."""
    fixed = list(fixed)
    findings.set_status(writer, (each.no for each in fixed), "fixed")
    timeline.append(
        writer,
        (
            NewEvent(
                each.file_no,
                "finding_closed",
                each.id,
                {"scan_source": source, "rule_id": each.rule_id, "severity": each.severity, "status": "fixed", **why},
            )
            for each in fixed
        ),
    )
    return {each.file_no for each in fixed}


def _change(writer: Writer, stored: StoredFile, actor: str, **changes: Any) -> None:
    record = replace(stored.record, **changes)
    news = [
        NewEvent(
            stored.no, "file_metadata_update", record.id, _event_data(name, getattr(stored.record, name), value, actor)
        )
        for name, value in changes.items()
        if getattr(stored.record, name) != value
    ]
    if news:
        files.update(writer, stored.no, record)
        timeline.append(writer, news)


def _event_data(name: str, old: Any, new: Any, actor: str) -> dict[str, Any]:
    if name == "removed_at":
        name, old, new = "removed", old is not None, new is not None
    return {"field": name, "old_value": old, "new_value": new, "actor": actor}


def language_of(path: str) -> str:
    """The language that a path speaks of; "" when it tells none."""
    name = path.rpartition("/")[2].lower()
    stem, dot, suffix = name.rpartition(".")
    return _BY_NAME.get(name) or (_BY_SUFFIX.get(suffix, "") if dot and stem else "")
