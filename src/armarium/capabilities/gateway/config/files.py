"""Reads and validates `rag-mcp.json` and `mcp.json`, the configuration files of servers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import ValidationError

from armarium.capabilities.gateway.config.entries import (
    SERVER_NAME,
    DataSource,
    ServerEntry,
    Timeouts,
    UiHints,
    describe_mistake,
)
from armarium.capabilities.gateway.errors import ServerConfigInvalid
from armarium.foundation.schema import type_in_words
from armarium.foundation.security.trust import Confirmable, sensitive_settings

ServerKind = Literal["rag", "generic"]

FILE_NAMES: Mapping[ServerKind, str] = {"rag": "rag-mcp.json", "generic": "mcp.json"}
SEARCH_ORDER = ("overrides", "defaults")
"""Folders of the configuration directory. The first folder that contains a file takes precedence; files are not
merged."""
BUILT_IN_SERVER = "armarium"
"""The reserved name of the built-in server."""

SCHEMA_KEY = "$schema"

_MAX_FILE_BYTES = 4 * 1024 * 1024
_MARKER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class StdioTransport:
    """A server that runs as a child process, with MCP on its standard input and output."""

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class HttpTransport:
    """A server with streamable HTTP at a URL."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """A server with its environment variables resolved."""

    name: str
    kind: ServerKind
    transport: StdioTransport | HttpTransport | None = None
    """How to reach it; None only for a disabled server."""
    # What follows is as in its entry.
    groups: tuple[str, ...] = ()
    is_exclusive: bool = False
    description: str = ""
    enabled: bool = True
    ui: UiHints = field(default_factory=UiHints)
    data_sources: tuple[DataSource, ...] = ()
    timeouts: Timeouts = field(default_factory=Timeouts)
    username_parameter: str | None = None

    @property
    def has_source_hints(self) -> bool:
        """Whether its entry describes sources or how to show them, as for a RAG server."""
        return bool(self.data_sources) or self.ui != UiHints()


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The valid content of both files."""

    servers: Mapping[str, ServerSpec]
    entries: Mapping[ServerKind, Mapping[str, ServerEntry]]
    """The entries as in the files, with `${NAME}` unresolved, so that they can be written back."""
    origins: Mapping[ServerKind, str | None]
    """The file in use for each kind, such as `overrides/rag-mcp.json`; None if there is none."""
    schemas: Mapping[ServerKind, str] = field(default_factory=dict[ServerKind, str])
    """The `$schema` of each file, which editors use."""


def read_server_config(config_dir: Path, environ: Mapping[str, str]) -> ServerConfig:
    """Read both files by the search order, with the variables that entries may use. Raises `ServerConfigInvalid` with
    every mistake."""
    entries: dict[ServerKind, Mapping[str, ServerEntry]] = {}
    origins: dict[ServerKind, str | None] = {}
    schemas: dict[ServerKind, str] = {}
    problems: list[str] = []
    for kind, file_name in FILE_NAMES.items():
        entries[kind], origins[kind] = {}, None
        folder = next((each for each in SEARCH_ORDER if (config_dir / each / file_name).is_file()), None)
        if folder is None:
            continue
        origins[kind] = source = f"{folder}/{file_name}"
        try:
            content = _read(config_dir / source, source)
            entries[kind] = parse_entries(content, source=source)
            if (schema := orjson.loads(content).get(SCHEMA_KEY)) is not None:
                schemas[kind] = schema
        except ServerConfigInvalid as error:
            problems += error.problems
    if problems:
        raise _invalid(problems)
    return ServerConfig(resolve_entries(entries, environ), entries, origins, schemas)


def has_config_folder(config_dir: Path) -> bool:
    """Whether one of the configuration folders exists."""
    return any((config_dir / folder).is_dir() for folder in SEARCH_ORDER)


def files_to_confirm(directory: Path, config_dir: str) -> Iterator[Confirmable]:
    """The configuration files in a directory that may come from anywhere. An absolute path names files elsewhere."""
    if os.path.isabs(os.path.expanduser(config_dir)):
        return
    for folder in SEARCH_ORDER:
        for name in FILE_NAMES.values():
            file = directory / config_dir / folder / name
            if file.is_file():
                try:
                    values = sensitive_settings(orjson.loads(_read(file, f"{folder}/{name}")), {}, ())
                except (orjson.JSONDecodeError, ServerConfigInvalid):
                    # Not a configuration: whoever uses it reports the mistake.
                    continue
                yield Confirmable(file, values, directory)


def override_file(config_dir: Path, kind: ServerKind) -> Path:
    """The file for changes through the API, so that shipped defaults stay unchanged."""
    return config_dir / SEARCH_ORDER[0] / FILE_NAMES[kind]


def parse_entries(content: bytes, *, source: str) -> dict[str, ServerEntry]:
    """The servers in a file's content. Raises `ServerConfigInvalid` with every mistake and its location."""
    if not content.strip():
        # Writing a file often truncates it first; that must not remove all servers.
        raise _invalid([f"{source} is empty; write {{}} for no servers"])
    try:
        parsed: Any = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise _invalid([f"{source} is not valid JSON: {error.msg} (line {error.lineno})"]) from error
    if not isinstance(parsed, dict):
        raise _invalid([f"{source} must contain an object of servers by name, not {type_in_words(parsed)}"])
    try:
        duplicates = _duplicate_keys(content)
    except RecursionError as error:
        raise _invalid([f"{source} is nested too deeply"]) from error
    if duplicates:
        raise _invalid([f"{source} has the key `{name[:80]}` twice in one object" for name in duplicates])
    values: dict[str, Any] = dict(parsed)  # pyright: ignore[reportUnknownArgumentType] any JSON
    if not isinstance(values.pop(SCHEMA_KEY, ""), str):
        raise _invalid([f"{source}: `{SCHEMA_KEY}` must be a string"])
    if set(values) == {"mcpServers"} and isinstance(values["mcpServers"], dict):
        # The key that most MCP clients use.
        values = dict(values["mcpServers"])  # pyright: ignore[reportUnknownArgumentType] any JSON
    entries: dict[str, ServerEntry] = {}
    problems: list[str] = []
    for name, value in values.items():
        try:
            entries[name] = parse_entry(name, value)
        except ServerConfigInvalid as error:
            problems += [f"{source}: {problem}" for problem in error.problems]
    if problems:
        raise _invalid(problems)
    return entries


def parse_entry(name: str, value: object) -> ServerEntry:
    """Validate the entry of a server. Raises `ServerConfigInvalid` with every mistake and its location."""
    if not re.fullmatch(SERVER_NAME, name):
        rule = "a letter, then letters, digits, `_` and `-`, at most 64"
        raise _invalid([f"`{name[:80]}` is not a valid server name: {rule}"])
    if name == BUILT_IN_SERVER:
        raise _invalid([f"`{name}` is reserved for the built-in server; use another name"])
    if not isinstance(value, dict):
        raise _invalid([f"`{name}` must be an object, not {type_in_words(value)}"])
    try:
        # As JSON, which has lists and no tuples; strict, since "no" and "off" would otherwise be read as false.
        return ServerEntry.model_validate_json(json.dumps(value), strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        raise _invalid([describe_mistake(name, mistake) for mistake in error.errors(include_input=False)]) from error


def resolve_entries(
    entries: Mapping[ServerKind, Mapping[str, ServerEntry]], environ: Mapping[str, str]
) -> dict[str, ServerSpec]:
    """The servers by name, with `${NAME}` in their variables and headers replaced."""
    servers: dict[str, ServerSpec] = {}
    problems: list[str] = []
    for kind, named in entries.items():
        for name, entry in named.items():
            if name in servers:
                problems.append(f"`{name}` is in {' and in '.join(FILE_NAMES.values())}; a name must be unique")
                continue
            problems += [
                f"`{name}.{place}` needs the environment variable {variable}, "
                "which is not set or not listed in `gateway.variables`"
                for place, variable in _missing_variables(entry, environ)
            ]
            shared = {each.name: getattr(entry, each.name) for each in fields(ServerSpec)[3:]}
            servers[name] = ServerSpec(name, kind, _transport(entry, environ), **shared)
    if problems:
        raise _invalid(problems)
    return servers


def _transport(entry: ServerEntry, environ: Mapping[str, str]) -> StdioTransport | HttpTransport | None:
    if entry.command is not None:
        return StdioTransport(entry.command, entry.args, _substitute(entry.env, environ), entry.cwd)
    if entry.url is not None:
        return HttpTransport(entry.url, _substitute(entry.headers, environ))
    return None


def _substitute(values: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    return {name: _MARKER.sub(lambda found: environ.get(found[1], ""), value) for name, value in values.items()}


def _missing_variables(entry: ServerEntry, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The missing variables of an enabled server, with their location."""
    if not entry.enabled:
        return
    for part, values in (("env", entry.env), ("headers", entry.headers)):
        for name, value in values.items():
            yield from ((f"{part}.{name}", found) for found in _MARKER.findall(value) if found not in environ)


def _duplicate_keys(content: bytes) -> list[str]:
    """Keys that occur more than once in an object. JSON parsers use the last one, people read the first."""
    duplicates: dict[str, None] = {}

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        unique = dict(pairs)
        if len(unique) < len(pairs):
            names = [name for name, _ in pairs]
            duplicates.update(dict.fromkeys(name for name in unique if names.count(name) > 1))
        return unique

    # Numbers stay texts: Python refuses to convert very long integers.
    json.loads(content, object_pairs_hook=collect, parse_int=str, parse_float=str)
    return list(duplicates)


def _read(file: Path, source: str) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _invalid([f"{source} cannot be read: {error.strerror}"]) from error
    if len(content) > _MAX_FILE_BYTES:
        raise _invalid([f"{source} is larger than {_MAX_FILE_BYTES} bytes"])
    return content


def _invalid(problems: list[str]) -> ServerConfigInvalid:
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return ServerConfigInvalid(
        problems[0] + more, problems=tuple(problems), hint="nothing was changed; correct the file and reload"
    )
