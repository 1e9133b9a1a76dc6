"""Generates docs/reference from the code: tools, settings, errors, commands and the schema of server files."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import typer
import yaml
from pydantic import BaseModel

from armarium.assembly import MANIFESTS
from armarium.capabilities.corpus.commands.app import app as dir2mcp_app
from armarium.capabilities.corpus.commands.settings import CORPUS_SECTIONS, Dir2McpSettings
from armarium.capabilities.gateway.config.schema import server_config_schema
from armarium.capabilities.sandbox import commands as filesystem
from armarium.foundation.errors import ArmariumError
from armarium.foundation.settings.model import LimitSettings, PipeSettings
from armarium.foundation.tools import ERROR_ENVELOPE, ToolSpec
from armarium.settings import Settings
from armarium.surfaces.cli.main import app
from armarium.surfaces.pipe.tool import pipe_tool
from reference.schema_tables import Schema, definitions_of, fields_of, nested_objects, result_fields

SERVERS_SCHEMA = "servers.schema.json"
_BANNER = "<!-- Generated from the code by `make docs`. Change the code, not this page. -->"
_TOOLS_INTRODUCTION = """\
# Tools

A result is an object in `structuredContent`, and its text is the same JSON. There are three exceptions. The first text
of `read_file` is the content of the file, and the second has the other fields. The text of a tool of the corpus is for
people. The text of `get_issue_files` is a list, which is `result` in `structuredContent`.

When a call fails, `isError` is true. The form of the error depends on the contract of the capability:

| capability | error in `structuredContent` |
|---|---|
| sandbox | `{"error": {…}}` with the fields below |
| corpus | `{"error": {…}}` with `code`, `message` and `retryable`; the text has the hint |
| store | `code`, `message`, `retryable`, and `retry_after_ms` if waiting helps |
| registry | `{"error": "…", "code": "…"}` |
| gateway | `{"results": {"error": {…}}, …}` with `code`, `message`, `retryable` and more |
"""
_SETTINGS_INTRODUCTION = """\
# Settings

`armarium serve --config armarium.yaml` reads one YAML file. A flag takes precedence over the environment, the
environment over the file, and the file over the defaults. `ARMARIUM_SERVER__PORT=9000` sets `server.port`: the prefix,
the section, two underscores, the setting. The section `store` ignores the environment. `armarium config print` shows
the settings in effect.
"""
_DIR2MCP_INTRODUCTION = """\
# The file `.dir2mcp.yaml`

`dir2mcp` reads `./.dir2mcp.yaml`, or the one in the directory that it serves. Flags take precedence over the
environment (`DIR2MCP_SERVER__LISTEN=127.0.0.1:8087`), the file and the defaults. `${NAME}` in a value is replaced by
that variable. `dir2mcp config print` shows the settings in effect. These sections are those of `corpus` above, without
the prefix `corpus.`: SECTIONS.
"""
_ERRORS_INTRODUCTION = """\
# Errors

Codes are stable, so programs may rely on them. *Retry* means that the same call can succeed later. A *denial* is logged
at WARN with the attempted and the resolved path.
"""
_COMMANDS_INTRODUCTION = """\
# Commands

Data goes to standard output, messages go to standard error. Exit codes: 0 success, 1 failure, 2 wrong command line or
settings, 130 interrupted. `dir2mcp` has further exit codes, listed below.
"""
_PACKAGES_WITH_ERRORS = tuple(
    f"armarium.{package}"
    for package in ("foundation", "capabilities", "retrieval", "providers", "surfaces.cli", "command_line")
)
_LONGEST_DEFAULT = 120
"""Longer defaults are shown below the table."""


def pages() -> dict[str, str]:
    """Every page by its file name."""
    made = {"tools.md": _tools(), "settings.md": _settings(), "errors.md": _errors(), "cli.md": _commands()}
    written = {
        name: re.sub(r"\n{3,}", "\n\n", "\n".join([_BANNER, "", *lines])).rstrip() + "\n"
        for name, lines in made.items()
    }
    return written | {SERVERS_SCHEMA: json.dumps(server_config_schema(), indent=2) + "\n"}


def _tools() -> Generator[str]:
    yield _TOOLS_INTRODUCTION
    error = ERROR_ENVELOPE.schema["properties"]["error"]
    rows = [(f"`{f.name}`", f.type, _yes(f.required), f.description) for f in fields_of(error, {})]
    yield from _table(("field", "type", "always present", "meaning"), rows)
    yield "The codes are in [errors.md](errors.md)."
    capability = None
    for owner, tool in _declared_tools():
        if owner != capability:
            capability = owner
            yield from ("", f"## {owner}")
        yield from _tool(tool)


def _declared_tools() -> list[tuple[str, ToolSpec]]:
    """The tools of every capability, and the one that runs several of them."""
    declared = [(manifest.name, tool) for manifest in MANIFESTS for tool in manifest.declared_tools()]
    return [*declared, ("pipe", pipe_tool(PipeSettings(), LimitSettings()))]


def _tool(tool: ToolSpec) -> Generator[str]:
    yield from ("", f"### {tool.name}", "", tool.description, "")
    yield f"*{_traits(tool)}*"
    yield ""
    arguments = [
        (f"`{f.name}`", f.type, "required" if f.required else _value(f.default), f.description)
        for f in fields_of(tool.input_schema, definitions_of(tool.input_schema))
    ]
    if not arguments:
        yield from ("No arguments.", "")
    elif any(meaning for *_, meaning in arguments):
        yield from _table(("argument", "type", "default", "meaning"), arguments)
    else:
        yield from _table(("argument", "type", "default"), [row[:-1] for row in arguments])
    if tool.output_schema is not None:
        fields = result_fields(tool.output_schema, definitions_of(tool.output_schema))
        rows = [(f"`{name}`", kind, _yes(always)) for name, kind, always in fields]
        yield from _table(("result", "type", "always present"), rows)


def _traits(tool: ToolSpec) -> str:
    traits = [
        "read-only" if tool.read_only else "may change data",
        "idempotent" if tool.idempotent else None,
        "destructive" if tool.destructive else None,
        "reaches beyond this server" if tool.open_world else None,
    ]
    return "; ".join(trait for trait in traits if trait)


def _settings() -> Generator[str]:
    yield _SETTINGS_INTRODUCTION
    shown: dict[str, str] = {}
    yield from _model("armarium.yaml", Settings, shown)
    yield from ("# The file of `mcp-filesystem`", "")
    yield from ("`mcp-filesystem --config FILE` reads a flat file.", "")
    yield from _model("mcp-filesystem.yaml", filesystem.FilesystemSettings, shown)
    sections = ", ".join(f"`{name}`" for name in CORPUS_SECTIONS)
    yield _DIR2MCP_INTRODUCTION.replace("SECTIONS", sections)
    defaults = Dir2McpSettings().model_dump(mode="json")
    yield from _model(".dir2mcp.yaml", Dir2McpSettings, shown, defaults, without=CORPUS_SECTIONS)


def _model(
    title: str,
    model: type[BaseModel],
    shown: dict[str, str],
    defaults: Schema | None = None,
    *,
    without: Sequence[str] = (),
) -> Generator[str]:
    schema = model.model_json_schema()
    properties = {name: node for name, node in schema["properties"].items() if name not in without}
    yield from _section(title, schema | {"properties": properties}, definitions_of(schema), defaults, shown, path="")


def _section(
    title: str,
    schema: Schema,
    definitions: Schema,
    defaults: Schema | None,
    shown: dict[str, str],
    *,
    path: str,
    about: str = "",
) -> Generator[str]:
    """One object of the settings as a table, then its nested objects. A long list is shown once on the page."""
    yield from (f"## {title}", "")
    if path:
        yield from (" ".join(str(about or schema.get("description", "")).split()), "")
    rows: list[tuple[str, ...]] = []
    long: list[str] = []
    within: list[str] = []
    for field in fields_of(schema, definitions, defaults):
        objects = list(nested_objects(field.schema, definitions))
        if not objects or any(is_list for _, is_list in objects):
            default = "required" if field.required else _value(field.default)
            listed = _as_yaml_list(field.default)
            if listed in shown:
                default = f"as `{shown[listed]}`"
            elif len(listed) > _LONGEST_DEFAULT:
                shown[listed] = f"{path}{field.name}"
                default = "below"
                long += ("", f"`{path}{field.name}`, by default:", "", "```yaml", listed, "```", "")
            rows.append((f"`{field.name}`", field.type, default, field.description))
        for inner, is_list in objects:
            name = f"{path}{field.name}{'[]' if is_list else ''}"
            # The description of a list is in its row; its items are described by their model.
            given, about = (None, "") if is_list else (field.default, field.description)
            within += _section(f"`{name}`", inner, definitions, given, shown, path=f"{name}.", about=about)
    if rows:
        yield from _table(("setting", "type", "default", "meaning"), rows)
    yield from long
    yield from within


def _as_yaml_list(default: Any) -> str:
    """A list as YAML; empty for any other value."""
    return yaml.safe_dump(default, width=1000).rstrip() if isinstance(default, list) and default else ""


def _errors() -> Generator[str]:
    yield _ERRORS_INTRODUCTION
    for package, classes in _error_classes().items():
        yield from ("", f"## {package}", "")
        rows = [
            (f"`{cls.code}`", " ".join((inspect.getdoc(cls) or "").split()), _yes(cls.retryable), _yes(cls.security))
            for cls in classes
        ]
        yield from _table(("code", "meaning", "retry", "denial"), rows)


def _error_classes() -> dict[str, list[type[ArmariumError]]]:
    """The error classes that define a code, by the part of the system they belong to."""
    for package in _PACKAGES_WITH_ERRORS:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    found: dict[str, list[type[ArmariumError]]] = {}
    for cls in sorted(_descendants(ArmariumError), key=lambda cls: cls.code):
        if "code" in vars(cls) and cls.__module__.startswith(_PACKAGES_WITH_ERRORS):
            found.setdefault(_owner(cls.__module__), []).append(cls)
    return dict(sorted(found.items(), key=lambda item: (item[0] != "everywhere", item[0] == "command line", item[0])))


def _owner(module: str) -> str:
    _, layer, part, *rest = module.split(".")
    if layer in ("surfaces", "command_line") or "commands" in rest:
        return "command line"
    if layer == "capabilities":
        return part
    return {"foundation": "everywhere", "providers": "models"}.get(layer, layer)


def _descendants(base: type[ArmariumError]) -> Iterable[type[ArmariumError]]:
    for cls in base.__subclasses__():
        yield cls
        yield from _descendants(cls)


def _commands() -> Generator[str]:
    yield _COMMANDS_INTRODUCTION
    yield from _command(typer.main.get_command(app), "armarium", None)
    parser = filesystem.argument_parser()
    yield from ("## mcp-filesystem", "", str(parser.description), "")
    rows = [
        (f"`{' '.join([', '.join(action.option_strings), str(action.metavar or '')]).rstrip()}`", str(action.help))
        for action in parser._actions  # pyright: ignore[reportPrivateUsage] argparse lists them nowhere else
    ]
    yield from _table(("option", "meaning"), rows)
    yield from _command(typer.main.get_command(dir2mcp_app), "dir2mcp", None)


def _command(
    command: Any, path: str, parent: typer.Context | None, shown: frozenset[tuple[str, str]] = frozenset()
) -> Generator[str]:
    """One command and its subcommands. Options that all of them have are shown once, at the top."""
    context = typer.Context(command, info_name=path.rpartition(" ")[2], parent=parent)
    yield from (f"## {path}", "")
    yield from _help(command.help or "")
    records = (parameter.get_help_record(context) for parameter in command.get_params(context))
    options = [record for record in records if record is not None and record[0] != "--help"]
    rows = [(f"`{option}`", meaning) for option, meaning in options if (option, meaning) not in shown]
    if rows:
        yield from _table(("option", "meaning"), rows)
    if len(rows) < len(options):
        yield from (f"It also takes the options of `{path.partition(' ')[0]}`.", "")
    for name, below in getattr(command, "commands", {}).items():
        yield from _command(below, f"{path} {name}", context, shown | frozenset(options))


def _help(text: str) -> Generator[str]:
    """Paragraphs unchanged; preformatted ones as code blocks."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            yield from ("```", *paragraph.splitlines()[1:], "```", "")
        else:
            yield from (*paragraph.splitlines(), "")


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Generator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


def _yes(fact: bool) -> str:
    return "yes" if fact else ""


def _value(default: Any) -> str:
    if default is None:
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    written = str(default).replace("\n", "\\n")
    return f"`{written}`" if default != "" else '`""`'
