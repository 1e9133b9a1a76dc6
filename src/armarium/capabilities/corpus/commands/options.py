"""The flags every command takes, before the command's name or after it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from armarium.command_line.host import CommandHost

# Not checked for being readable: that would be a wrong command line, and has an exit code of its own for each of them.
Directory = Annotated[
    Path | None,
    typer.Option("--dir", metavar="PATH", readable=False, help="The directory to index. [default: this one]"),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", readable=False, help="File of settings. [default: ./.dir2mcp.yaml]"),
]
StateDirectory = Annotated[
    Path | None,
    typer.Option(
        "--state-dir", metavar="PATH", readable=False, help="Where the index is kept. [default: DIR/.dir2mcp]"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output; for `up`, one event a line.")]
NonInteractive = Annotated[
    bool, typer.Option("--non-interactive", help="Ask nothing; say what is missing and end with 2.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Only what is needed.")]

_COMMON: dict[str, tuple[Any, Any]] = {
    "directory": (Directory, None),
    "config": (ConfigFile, None),
    "state_dir": (StateDirectory, None),
    "as_json": (AsJson, False),
    "non_interactive": (NonInteractive, False),
    "quiet": (Quiet, False),
}


@dataclass(frozen=True, slots=True)
class Common:
    """The host, and the flags of every command."""

    host: CommandHost
    directory: Path | None = None
    config: Path | None = None
    state_dir: Path | None = None
    as_json: bool = False
    non_interactive: bool = False
    quiet: bool = False


def takes_common_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command whose first parameter is a `Common` take these flags, and those given before its name."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    def with_flags(context: typer.Context, **given: Any) -> None:
        here = {name: given.pop(name) for name in _COMMON}
        before: Common = context.find_root().obj
        merged = {name: value or getattr(before, name) for name, value in here.items()}
        command(Common(before.host, **merged), **given)

    taken = [
        inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
        *own,
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for name, (annotation, default) in _COMMON.items()
        ),
    ]
    with_flags.__name__, with_flags.__doc__ = command.__name__, command.__doc__
    with_flags.__annotations__ = {parameter.name: parameter.annotation for parameter in taken}
    setattr(with_flags, "__signature__", inspect.Signature(taken))  # noqa: B010 functions declare no such attribute
    return with_flags
