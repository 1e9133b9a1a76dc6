"""Declares `armarium store` and its options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from armarium.command_line import run as command
from armarium.command_line.options import AsJson, ConfigFile, LogLevel
from armarium.command_line.output import show

if TYPE_CHECKING:
    from armarium.capabilities.store.settings import StoreSettings
    from armarium.foundation.settings import CoreSettings

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
    if context.invoked_subcommand is None:
        show(context.get_help())


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
    settings, section = _store_settings(context, config, {"telemetry.log_level": log_level})
    from armarium.capabilities.store.commands.worker import work

    command.run_until_interrupted(lambda: work(settings, section, workers, metrics_port, as_json=as_json))


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
    settings, section = _store_settings(context, config)
    from armarium.capabilities.store.commands.reindex import reindex

    reindex(context.obj, settings, section, yes=yes, wait=wait, as_json=as_json)


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
    settings, section = _store_settings(context, config)
    from armarium.capabilities.store.commands.archives import caller_of, export_archive

    caller = caller_of(settings, user, key_file)
    export_archive(context.obj, settings, section, file, project, caller, as_json=as_json)


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
    settings, section = _store_settings(context, config)
    from armarium.capabilities.store.commands.archives import caller_of, import_archive

    caller = caller_of(settings, user, key_file)
    import_archive(context.obj, settings, section, file, project, caller, overwrite=overwrite, as_json=as_json)


def _store_settings(
    context: typer.Context, config: Path | None, flags: Mapping[str, Any] | None = None
) -> tuple[CoreSettings, StoreSettings]:
    """The settings, and their section for the store."""
    settings = context.obj.load_settings(config, flags)
    command.enable_garbage_collection()
    return settings, context.obj.section(settings, "store")
