"""Generates docs/reference from the code: tools, settings, errors, commands and the schema of server files."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import tempfile
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import anyio
import typer
import yaml
from pydantic import BaseModel

from armarium.assembly import MANIFESTS, Settings, open_armarium, servers_schema
from armarium.foundation.errors import ArmariumError
from armarium.foundation.tools import ERROR_ENVELOPE, ToolSpec
from armarium.surfaces.cli import filesystem
from armarium.surfaces.cli.dir2mcp.main import app as dir2mcp_app
from armarium.surfaces.cli.dir2mcp.settings import CORPUS_SECTIONS, Dir2McpSettings
from armarium.surfaces.cli.main import app
from reference.schema_tables import Schema, answer_fields, definitions_of, fields_of, nested_objects

SERVERS_SCHEMA = "servers.schema.json"
_BANNER = "<!-- Generated from the code by `make docs`. Change the code, not this page. -->"
_TOOLS_INTRODUCTION = """\
# Tools

An answer is an object in `structuredContent`. The text of a tool of the sandbox is the same JSON, except that
`read_file` gives the content as one text and the rest as JSON in a second; the text of a tool of the corpus is for
reading. When a call fails, `isError` is true and `structuredContent` is `{"error": {…}}` with the fields below; the
corpus has the first three, and says its hint in the text. The store has the first three without `error` around them,
and `retry_after_ms` where waiting helps. The registry has `{"error": "…", "code": "…"}`, and one answer that is a list:
the text of `get_issue_files` is the list itself, `structuredContent` has it as `result`.
"""
_SETTINGS_INTRODUCTION = """\
# Settings

`armarium serve --config armarium.yaml` reads one YAML file. A flag wins over the environment, the environment over the
file, the file over the defaults. `ARMARIUM_SERVER__PORT=9000` is `server.port: 9000`: the prefix, the section, two
underscores, the setting. Only the section `store` takes nothing from the environment. `armarium config print` shows
what is in effect.
"""
_DIR2MCP_INTRODUCTION = """\
# The file `.dir2mcp.yaml`

`dir2mcp` reads `./.dir2mcp.yaml`, or the one in the directory it serves. The order is flags, environment
(`DIR2MCP_SERVER__LISTEN=127.0.0.1:8087`), file, defaults; `${NAME}` in a value is the variable of that name.
`dir2mcp config print` shows what is in effect. These sections are those of `corpus` above, without `corpus.` in front:
SECTIONS.
"""
_ERRORS_INTRODUCTION = """\
# Errors

Codes are stable: programs may rely on them. *Retry* means that the same call can succeed later. A *denial* is logged at
WARN with the attempted and the resolved path.
"""
_COMMANDS_INTRODUCTION = """\
# Commands

Data goes to standard output and talk to standard error. Exit codes: 0 it worked, 1 it failed, 2 the command line or the
settings are wrong, 130 interrupted. `dir2mcp` has some more, and names them.
"""
_PACKAGES_WITH_ERRORS = tuple(
    f"armarium.{package}" for package in ("foundation", "capabilities", "retrieval", "providers", "surfaces.cli")
)
_LONGEST_DEFAULT = 120
"""What is longer stands below the table."""


def pages() -> dict[str, str]:
    """Every page by its file name."""
    made = {"tools.md": _tools(), "settings.md": _settings(), "errors.md": _errors(), "cli.md": _commands()}
    written = {
        name: re.sub(r"\n{3,}", "\n\n", "\n".join([_BANNER, "", *lines])).rstrip() + "\n"
        for name, lines in made.items()
    }
    return written | {SERVERS_SCHEMA: json.dumps(servers_schema(), indent=2) + "\n"}


def _tools() -> Generator[str]:
    yield _TOOLS_INTRODUCTION
    error = ERROR_ENVELOPE.schema["properties"]["error"]
    rows = [(f"`{f.name}`", f.type, _yes(f.required), f.description) for f in fields_of(error, {})]
    yield from _table(("field", "type", "always there", "meaning"), rows)
    yield "The codes are in [errors.md](errors.md)."
    capability = None
    for owner, tool in _served_tools():
        if owner != capability:
            capability = owner
            yield from ("", f"## {owner}")
        yield from _tool(tool)


def _served_tools() -> list[tuple[str, ToolSpec]]:
    """The tools of every capability, asked of a server that is opened for it and closed again."""

    async def ask() -> list[tuple[str, ToolSpec]]:
        with tempfile.TemporaryDirectory() as directory:
            roots = [{"name": "workspace", "path": directory, "allowed_tools": ["*"]}]
            wanted = {
                "state_dir": f"{directory}/state",
                "audit": {"enabled": False},
                "sandbox": {"roots": roots},
                "corpus": {"root": directory, "ingest": {"watch": False}},
            }
            async with open_armarium(Settings.model_validate(wanted)) as armarium:
                return armarium.dispatcher.tools

    served = anyio.run(ask) + [(manifest.name, tool) for manifest in MANIFESTS for tool in manifest.declared_tools()]
    return [(owner, tool) for manifest in MANIFESTS for owner, tool in served if owner == manifest.name]


def _tool(tool: ToolSpec) -> Generator[str]:
    yield from ("", f"### {tool.name}", "", tool.description, "")
    yield f"*{_traits(tool)}*"
    yield ""
    arguments = [
        (f"`{f.name}`", f.type, "required" if f.required else _value(f.default), f.description)
        for f in fields_of(tool.input_schema, definitions_of(tool.input_schema))
    ]
    if not arguments:
        yield from ("It takes no arguments.", "")
    elif any(meaning for *_, meaning in arguments):
        yield from _table(("argument", "type", "default", "meaning"), arguments)
    else:
        yield from _table(("argument", "type", "default"), [row[:-1] for row in arguments])
    if tool.output_schema is not None:
        fields = answer_fields(tool.output_schema, definitions_of(tool.output_schema))
        rows = [(f"`{name}`", kind, _yes(always)) for name, kind, always in fields]
        yield from _table(("answer", "type", "always there"), rows)


def _traits(tool: ToolSpec) -> str:
    traits = [
        "reads only" if tool.read_only else "may change files",
        "calling it twice is the same as once" if tool.idempotent else None,
        "destructive" if tool.destructive else None,
        "reaches beyond this server" if tool.open_world else None,
    ]
    return "; ".join(trait for trait in traits if trait)


def _settings() -> Generator[str]:
    yield _SETTINGS_INTRODUCTION
    told: dict[str, str] = {}
    yield from _model("armarium.yaml", Settings, told)
    yield from ("# The file of `mcp-filesystem`", "")
    yield from ("`mcp-filesystem --config FILE` reads a flat file of its own.", "")
    yield from _model("mcp-filesystem.yaml", filesystem.FilesystemSettings, told)
    sections = ", ".join(f"`{name}`" for name in CORPUS_SECTIONS)
    yield _DIR2MCP_INTRODUCTION.replace("SECTIONS", sections)
    defaults = Dir2McpSettings().model_dump(mode="json")
    yield from _model(".dir2mcp.yaml", Dir2McpSettings, told, defaults, without=CORPUS_SECTIONS)


def _model(
    title: str,
    model: type[BaseModel],
    told: dict[str, str],
    defaults: Schema | None = None,
    *,
    without: Sequence[str] = (),
) -> Generator[str]:
    schema = model.model_json_schema()
    properties = {name: node for name, node in schema["properties"].items() if name not in without}
    yield from _section(title, schema | {"properties": properties}, definitions_of(schema), defaults, told, path="")


def _section(
    title: str,
    schema: Schema,
    definitions: Schema,
    defaults: Schema | None,
    told: dict[str, str],
    *,
    path: str,
    about: str = "",
) -> Generator[str]:
    """One object of the settings as a table, and then the objects within it. Long lists are `told` once on the page."""
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
            if listed in told:
                default = f"that of `{told[listed]}`"
            elif len(listed) > _LONGEST_DEFAULT:
                told[listed] = f"{path}{field.name}"
                default = "below"
                long += ("", f"`{path}{field.name}`, unless set:", "", "```yaml", listed, "```", "")
            rows.append((f"`{field.name}`", field.type, default, field.description))
        for inner, is_list in objects:
            name = f"{path}{field.name}{'[]' if is_list else ''}"
            # A list is described where it is listed, its items by what they are.
            given, about = (None, "") if is_list else (field.default, field.description)
            within += _section(f"`{name}`", inner, definitions, given, told, path=f"{name}.", about=about)
    if rows:
        yield from _table(("setting", "type", "default", "meaning"), rows)
    yield from long
    yield from within


def _as_yaml_list(default: Any) -> str:
    """A list as a file of settings would hold it; of anything else, nothing."""
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
    """The errors that have a code of their own, by where they live."""
    for package in _PACKAGES_WITH_ERRORS:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    found: dict[str, list[type[ArmariumError]]] = {}
    for cls in sorted(_descendants(ArmariumError), key=lambda cls: cls.code):
        if "code" in vars(cls) and cls.__module__.startswith(_PACKAGES_WITH_ERRORS):
            found.setdefault(_owner(cls.__module__), []).append(cls)
    return dict(sorted(found.items(), key=lambda item: (item[0] != "everywhere", item[0] == "command line", item[0])))


def _owner(module: str) -> str:
    _, layer, part, *_ = module.split(".")
    if layer == "capabilities":
        return part
    return {"foundation": "everywhere", "surfaces": "command line", "providers": "models"}.get(layer, layer)


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
    command: Any, path: str, parent: typer.Context | None, told: frozenset[tuple[str, str]] = frozenset()
) -> Generator[str]:
    """One command and those below it; what all of them take is `told` at the top only."""
    context = typer.Context(command, info_name=path.rpartition(" ")[2], parent=parent)
    yield from (f"## {path}", "")
    yield from _help(command.help or "")
    records = (parameter.get_help_record(context) for parameter in command.get_params(context))
    options = [record for record in records if record is not None and record[0] != "--help"]
    rows = [(f"`{option}`", meaning) for option, meaning in options if (option, meaning) not in told]
    if rows:
        yield from _table(("option", "meaning"), rows)
    if len(rows) < len(options):
        yield from (f"It takes the options of `{path.partition(' ')[0]}`, too.", "")
    for name, below in getattr(command, "commands", {}).items():
        yield from _command(below, f"{path} {name}", context, told | frozenset(options))


def _help(text: str) -> Generator[str]:
    """Paragraphs as they are; what the terminal shows line by line is code."""
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
