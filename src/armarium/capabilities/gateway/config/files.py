"""The files that name the servers behind the gateway: `rag-mcp.json` and `mcp.json`, read whole or not at all."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import ValidationError

from armarium.capabilities.gateway.config.entries import (
    DataSource,
    ServerEntry,
    Timeouts,
    UiHints,
    in_words,
    mapping_problem,
)
from armarium.capabilities.gateway.errors import RegistryInvalid
from armarium.foundation.schema import type_in_words

ServerKind = Literal["rag", "generic"]

FILE_NAMES: Mapping[ServerKind, str] = {"rag": "rag-mcp.json", "generic": "mcp.json"}
SEARCH_ORDER = ("overrides", "defaults")
"""Folders of the configuration directory; the first that has a file is the one that counts, whole."""
BUILT_IN_SERVER = "armarium"
"""The name under which our own sources appear; no file may take it."""

SCHEMA_KEY = "$schema"

_LARGEST_FILE_BYTES = 4 * 1024 * 1024
_MARKER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class StdioTransport:
    """A server that is a process of ours, spoken to through its standard input and output."""

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class HttpTransport:
    """A server at an address, spoken to in streamable HTTP."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One server: who may see it, what it shows, and how to reach it. Two are equal when nothing needs to change."""

    name: str
    kind: ServerKind
    transport: StdioTransport | HttpTransport | None = None
    """How to reach it; None only for a server that is not enabled."""
    groups: tuple[str, ...] = ()
    is_exclusive: bool = False
    description: str = ""
    enabled: bool = True
    ui: UiHints = field(default_factory=UiHints)
    data_sources: tuple[DataSource, ...] = ()
    timeouts: Timeouts = field(default_factory=Timeouts)

    @property
    def display_name(self) -> str:
        """What people read; the server's own name when its file gives no other."""
        return self.ui.display_name or self.name


@dataclass(frozen=True, slots=True)
class RegistryFile:
    """Both files as they were read, all of it valid."""

    servers: Mapping[str, ServerSpec]
    entries: Mapping[ServerKind, Mapping[str, ServerEntry]]
    """The same as the files have it, with `${NAME}` unfilled: safe to show, and to write back."""
    origins: Mapping[ServerKind, str | None]
    """Which file counts for each kind, as `overrides/rag-mcp.json`; None when there is none."""
    schemas: Mapping[ServerKind, str] = field(default_factory=dict[ServerKind, str])
    """Where a file says that its schema is, for the editor of whoever writes it."""


def read_registry(config_dir: Path, environ: Mapping[str, str] | None = None) -> RegistryFile:
    """Both files, the first of each in the search order; `RegistryInvalid` with every mistake when there is any."""
    entries: dict[ServerKind, Mapping[str, ServerEntry]] = {}
    origins: dict[ServerKind, str | None] = {}
    schemas: dict[ServerKind, str] = {}
    problems: list[str] = []
    for kind in FILE_NAMES:
        file = file_that_counts(config_dir, kind)
        origins[kind] = _label(file) if file else None
        entries[kind] = {}
        if file is not None:
            try:
                content = _content(file)
                entries[kind] = parse_entries(content, source=_label(file))
                schemas |= {kind: schema} if (schema := _named_schema(content)) is not None else {}
            except RegistryInvalid as error:
                problems += error.problems
    if problems:
        raise _invalid(problems)
    return RegistryFile(resolved(entries, environ), entries, origins, schemas)


def has_files(config_dir: Path) -> bool:
    """Whether there is a folder in which files are looked for."""
    return any((config_dir / folder).is_dir() for folder in SEARCH_ORDER)


def file_that_counts(config_dir: Path, kind: ServerKind) -> Path | None:
    """The first file of that kind in the search order."""
    candidates = (config_dir / folder / FILE_NAMES[kind] for folder in SEARCH_ORDER)
    return next((file for file in candidates if file.is_file()), None)


def override_file(config_dir: Path, kind: ServerKind) -> Path:
    """Where changes made through the API go, so that what an installation ships stays as it is."""
    return config_dir / SEARCH_ORDER[0] / FILE_NAMES[kind]


def parse_entries(content: bytes, *, source: str) -> dict[str, ServerEntry]:
    """The servers in a file's content; `RegistryInvalid` with every mistake and its place."""
    if not content.strip():
        # Whoever writes a file empties it first; the servers must not all go for as long as that takes.
        raise _invalid([f"{source} is empty; write {{}} if there are to be no servers"])
    try:
        parsed: Any = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise _invalid([f"{source} is not valid JSON: {error.msg} (line {error.lineno})"]) from error
    if not isinstance(parsed, dict):
        raise _invalid([f"{source} must hold an object of servers by name, not {type_in_words(parsed)}"])
    try:
        twice = _said_twice(content)
    except RecursionError as error:
        raise _invalid([f"{source} has too many objects inside each other"]) from error
    if twice:
        raise _invalid([f"{source} has the key `{name[:80]}` twice in one object" for name in twice])
    values: dict[str, Any] = dict(parsed)  # pyright: ignore[reportUnknownArgumentType] any JSON
    if not isinstance(values.pop(SCHEMA_KEY, ""), str):
        raise _invalid([f"{source}: `{SCHEMA_KEY}` must be a string"])
    if set(values) == {"mcpServers"} and isinstance(values["mcpServers"], dict):
        # What most clients call the same list.
        values = dict(values["mcpServers"])  # pyright: ignore[reportUnknownArgumentType] any JSON
    entries: dict[str, ServerEntry] = {}
    problems: list[str] = []
    for name, value in values.items():
        try:
            entries[name] = checked_entry(name, value)
        except RegistryInvalid as error:
            problems += [f"{source}: {problem}" for problem in error.problems]
    if problems:
        raise _invalid(problems)
    return entries


def checked_entry(name: str, value: object) -> ServerEntry:
    """One server as a file or the API gives it; `RegistryInvalid` with every mistake and its place."""
    if (problem := mapping_problem(name, value, reserved=BUILT_IN_SERVER)) is not None:
        raise _invalid([problem])
    try:
        # As JSON, which has lists and no tuples; and strict, for "no" would be read as false, and so would `off`.
        return ServerEntry.model_validate_json(json.dumps(value), strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        raise _invalid([in_words(name, mistake) for mistake in error.errors(include_input=False)]) from error


def resolved(
    entries: Mapping[ServerKind, Mapping[str, ServerEntry]], environ: Mapping[str, str] | None = None
) -> dict[str, ServerSpec]:
    """The servers by name, with `${NAME}` in their variables and headers filled from the environment."""
    environ = os.environ if environ is None else environ
    servers: dict[str, ServerSpec] = {}
    problems: list[str] = []
    for kind, named in entries.items():
        for name, entry in named.items():
            if name in servers:
                problems.append(f"`{name}` is in {' and in '.join(FILE_NAMES.values())}; a name can be one server only")
                continue
            problems += [
                f"`{name}.{place}` needs the environment variable {variable}, which is not set"
                for place, variable in _missing_variables(entry, environ)
            ]
            servers[name] = _spec(name, kind, entry, environ)
    if problems:
        raise _invalid(problems)
    return servers


def _spec(name: str, kind: ServerKind, entry: ServerEntry, environ: Mapping[str, str]) -> ServerSpec:
    return ServerSpec(
        name=name,
        kind=kind,
        transport=_transport(entry, environ),
        groups=entry.groups,
        is_exclusive=entry.is_exclusive,
        description=entry.description,
        enabled=entry.enabled,
        ui=entry.ui,
        data_sources=entry.data_sources,
        timeouts=entry.timeouts,
    )


def _transport(entry: ServerEntry, environ: Mapping[str, str]) -> StdioTransport | HttpTransport | None:
    if entry.command is not None:
        return StdioTransport(entry.command, entry.args, _filled(entry.env, environ), entry.cwd)
    if entry.url is not None:
        return HttpTransport(entry.url, _filled(entry.headers, environ))
    return None


def _filled(values: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    return {name: _MARKER.sub(lambda found: environ.get(found[1], ""), value) for name, value in values.items()}


def _missing_variables(entry: ServerEntry, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Only for servers that will run: a file may describe one whose key this machine does not have."""
    if not entry.enabled:
        return
    for part, values in (("env", entry.env), ("headers", entry.headers)):
        for name, value in values.items():
            yield from ((f"{part}.{name}", found) for found in _MARKER.findall(value) if found not in environ)


def _said_twice(content: bytes) -> list[str]:
    """Keys that an object of a valid file has more than once: readers go by the last, people by the first they see."""
    twice: dict[str, None] = {}

    def noticed(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        unique = dict(pairs)
        if len(unique) < len(pairs):
            names = [name for name, _ in pairs]
            twice.update(dict.fromkeys(name for name in unique if names.count(name) > 1))
        return unique

    # Numbers stay text: some are so long that making one of them is refused.
    json.loads(content, object_pairs_hook=noticed, parse_int=str, parse_float=str)
    return list(twice)


def _named_schema(content: bytes) -> str | None:
    """What a valid file says of its schema."""
    named: object = orjson.loads(content).get(SCHEMA_KEY)
    return named if isinstance(named, str) else None


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(_LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise _invalid([f"{_label(file)} cannot be read: {error.strerror}"]) from error
    if len(content) > _LARGEST_FILE_BYTES:
        raise _invalid([f"{_label(file)} is larger than {_LARGEST_FILE_BYTES} bytes"])
    return content


def _label(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"


def _invalid(problems: list[str]) -> RegistryInvalid:
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return RegistryInvalid(
        problems[0] + more, problems=tuple(problems), hint="nothing was changed; mend the file and load it again"
    )
