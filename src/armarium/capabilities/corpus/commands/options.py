"""The flags that every command accepts, before or after its name."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from armarium.command_line.host import CommandHost

if TYPE_CHECKING:
    from armarium.capabilities.corpus.commands.settings_loader import Location


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """The host, and the flags that every command accepts."""

    host: CommandHost
    # `readable=False`: typer must not check the paths, because each unreadable path has an exit code of its own.
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="PATH", readable=False, help="Directory to index. [default: .]")
    ] = None
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", readable=False, help="Settings file. [default: ./.dir2mcp.yaml]"),
    ] = None
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", metavar="PATH", readable=False, help="State directory. [default: DIR/.dir2mcp]"),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON to standard output; `up` writes one event per line.")
    ] = False
    non_interactive: Annotated[
        bool, typer.Option("--non-interactive", help="Do not prompt; exit with 2 if a required value is missing.")
    ] = False
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Confirm the settings of the directory that send, spend, listen or execute."),
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="Write only essential output.")] = False

    @property
    def location(self) -> Location:
        from armarium.capabilities.corpus.commands.settings_loader import Location

        directory = self.directory or Path()
        return Location(directory, self.config, self.state_dir, trust=self.trust, interactive=self.interactive)

    @property
    def interactive(self) -> bool:
        return not self.non_interactive and sys.stdin.isatty() and sys.stdout.isatty()


def takes_common_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Add the common flags to a command, and pass them to its parameter `common`, merged with those before its name."""
    annotations = get_type_hints(CommonOptions, include_extras=True)
    flags = {field.name: field.default for field in fields(CommonOptions)[1:]}
    declared = inspect.signature(command, eval_str=True).parameters

    def with_flags(context: typer.Context, **given: Any) -> None:
        here = {name: value for name in flags if (value := given.pop(name))}
        # The object of the root is the host until the callback of the program replaces it.
        before: CommonOptions | CommandHost = context.find_root().obj
        common = replace(before, **here) if isinstance(before, CommonOptions) else CommonOptions(before, **here)
        command(common, **given | ({"context": context} if "context" in declared else {}))

    parameters = [
        inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
        *(parameter for name, parameter in declared.items() if name not in ("common", "context")),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotations[name], default=default)
            for name, default in flags.items()
        ),
    ]
    with_flags.__name__, with_flags.__doc__ = command.__name__, command.__doc__
    with_flags.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    setattr(with_flags, "__signature__", inspect.Signature(parameters))  # noqa: B010 functions declare no such attribute
    return with_flags
