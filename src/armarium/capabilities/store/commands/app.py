"""Declares `armarium store` and its options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from armarium.command_line import run as command
from armarium.command_line.options import AsJson, ConfigFile, LogLevel
from armarium.command_line.output import show_help

if TYPE_CHECKING:
    from armarium.capabilities.store.commands.operation import Operation

app = typer.Typer(rich_markup_mode=None)

User = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Owner of the files, by the name in security.keys; local is the caller over stdio."
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Owner of the files, by the key in a file. [default: the server's token]"),
]


@app.callback(invoke_without_command=True)
def store(context: typer.Context) -> None:
    """Administer the store: index files, rebuild the index, export and import."""
    show_help(context)


@app.command("worker")
def store_worker(
    context: typer.Context,
    config: ConfigFile = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Files indexed at once. [default: store.index.workers]")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=65535, help="Serve metrics at /metrics on this port of server.host."),
    ] = None,
    log_level: LogLevel = None,
    as_json: AsJson = False,
) -> None:
    """Index files for the servers on the same database, until Ctrl-C or SIGTERM.

    Any number of workers may run at the same time. Jobs that a worker has not finished return to the queue.

    \b
    armarium store worker --config team.yaml --workers 4
    """
    operation = _operation(context, config, as_json, {"telemetry.log_level": log_level})
    from armarium.capabilities.store.commands.worker import work

    command.run_until_interrupted(lambda: work(operation, workers, metrics_port))


@app.command("reindex")
def store_reindex(
    context: typer.Context,
    config: ConfigFile = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait/--no-wait", help="Index in this process until the queue is empty, or leave it to others."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Create all vectors again, after a change of store.embedding.

    Prints the consequences and asks. If the number of dimensions changes, stop all servers during the command.
    """
    operation = _operation(context, config, as_json)
    from armarium.capabilities.store.commands.reindex import reindex

    reindex(operation, yes=yes, wait=wait)


@app.command("export")
def store_export(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="OUT.tar", help="Archive to write; - is standard output.")],
    project: Annotated[
        str, typer.Option(metavar="NAME", help='Project to export; "*" exports all projects of the owner.')
    ],
    user: User = None,
    key_file: KeyFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Export the files of a caller to a tar archive.

    The archive is a consistent snapshot. Members are named project/path. Earlier versions are not exported.

    \b
    armarium store export notes.tar --project notes
    armarium store export - --project '*' --user ada | gzip > ada.tar.gz
    """
    operation = _operation(context, config, as_json)
    from armarium.capabilities.store.commands.archives import export_archive

    export_archive(operation, file, project, operation.caller(user, key_file))


@app.command("import")
def store_import(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="IN.tar", help="Archive to read, also compressed; - is standard input.")
    ],
    project: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Project for all files. [default: the first directory of each member]"),
    ] = None,
    user: User = None,
    key_file: KeyFile = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files with different content.")] = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Import the files of a tar archive.

    The checks and limits of a write of the caller apply to each member. Members that cannot be stored are skipped and
    reported, and the exit code is 1. An interrupted import can be repeated: unchanged files are not written again.

    \b
    armarium store import notes.tar
    armarium store import ada.tar.gz --user ada --overwrite
    """
    operation = _operation(context, config, as_json)
    from armarium.capabilities.store.commands.archives import import_archive

    import_archive(operation, file, project, operation.caller(user, key_file), overwrite=overwrite)


@app.command("purge")
def store_purge(
    context: typer.Context,
    project: Annotated[str, typer.Option(metavar="NAME", help="Project to purge.")],
    path: Annotated[str, typer.Option(metavar="PATH", help="Only this file or directory in it.")] = "",
    user: User = None,
    key_file: KeyFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Delete earlier versions and deleted files of a caller for good.

    Current files stay. This is what the tool file_purge does, for the owner of the server's token or the named caller.

    \b
    armarium store purge --project notes
    armarium store purge --project notes --path /drafts --user ada
    """
    operation = _operation(context, config, as_json)
    from armarium.capabilities.store.commands.archives import purge

    purge(operation, project, path, operation.caller(user, key_file))


def _operation(
    context: typer.Context, config: Path | None, as_json: bool, flags: Mapping[str, Any] | None = None
) -> Operation:
    settings = context.obj.load_settings(config, flags)
    command.enable_garbage_collection()
    from armarium.capabilities.store.commands.operation import Operation

    return Operation(context.obj, settings, context.obj.section(settings, "store"), as_json)
