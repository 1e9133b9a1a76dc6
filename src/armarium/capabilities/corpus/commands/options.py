"""The flags that every command accepts, before or after its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from armarium.command_line.host import CommandHost

# `readable=False`: typer must not check the paths, because each unreadable path has an exit code of its own.
Directory = Annotated[
    Path | None,
    typer.Option("--dir", metavar="PATH", readable=False, help="Directory to index. [default: .]"),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", readable=False, help="Settings file. [default: ./.dir2mcp.yaml]"),
]
StateDirectory = Annotated[
    Path | None,
    typer.Option("--state-dir", metavar="PATH", readable=False, help="State directory. [default: DIR/.dir2mcp]"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON to standard output; `up` writes one event per line.")]
NonInteractive = Annotated[
    bool, typer.Option("--non-interactive", help="Do not prompt; exit with 2 if a required value is missing.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Write only essential output.")]

_COMMON: dict[str, tuple[Any, Any]] = {
    "directory": (Directory, None),
    "config": (ConfigFile, None),
    "state_dir": (StateDirectory, None),
    "as_json": (AsJson, False),
    "non_interactive": (NonInteractive, False),
    "quiet": (Quiet, False),
}


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """The host, and the flags that every command accepts."""

    host: CommandHost
    directory: Path | None = None
    config: Path | None = None
    state_dir: Path | None = None
    as_json: bool = False
    non_interactive: bool = False
    quiet: bool = False


def takes_common_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Add the common flags to a command, and pass them to its first parameter, merged with those before its name."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    def with_flags(context: typer.Context, **given: Any) -> None:
        here = {name: given.pop(name) for name in _COMMON}
        before: CommonOptions = context.find_root().obj
        merged = {name: value or getattr(before, name) for name, value in here.items()}
        command(CommonOptions(before.host, **merged), **given)

    parameters = [
        inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
        *own,
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for name, (annotation, default) in _COMMON.items()
        ),
    ]
    with_flags.__name__, with_flags.__doc__ = command.__name__, command.__doc__
    with_flags.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    setattr(with_flags, "__signature__", inspect.Signature(parameters))  # noqa: B010 functions declare no such attribute
    return with_flags
