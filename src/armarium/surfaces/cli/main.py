"""The `armarium` command: declares the server's commands and options, and adds those of the capabilities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from armarium.assembly import MANIFESTS
from armarium.command_line import run as command
from armarium.command_line.host import CommandGroups
from armarium.command_line.options import CONFIG_FILE, AsJson, ConfigFile, LogLevel
from armarium.command_line.output import FAILED, Misuse, report, show, show_help, show_json
from armarium.surfaces.cli.directory_flags import WantedCapabilities, takes_directory_flags
from armarium.surfaces.cli.host import Host
from armarium.surfaces.cli.keys import keys_app
from armarium.surfaces.cli.trust import trust_app

# Commands import what they need when they run: a server must start within a second, and most commands need little.

app = typer.Typer(
    name="armarium",
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(rich_markup_mode=None)
app.add_typer(config_app, name="config")
app.add_typer(keys_app, name="keys")
app.add_typer(trust_app, name="trust")
for _manifest in MANIFESTS:
    _manifest.add_commands(CommandGroups(app, config_app))

Address = Annotated[str | None, Option(metavar="ADDRESS", help="Address to listen on.")]
Port = Annotated[int | None, Option(metavar="N", min=0, max=65535, help="Port to listen on; 0 chooses a free one.")]
Write = Annotated[bool, Option("--write", help="Let agents change files. Without it they can only read.")]


@app.callback(invoke_without_command=True)
def armarium(
    context: typer.Context,
    print_version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """One MCP server for everything an agent does with files.

    \b
    Begin here:
      armarium up .                           serve this directory, read-only
      armarium up ~/notes --write             let agents change files as well
      armarium install claude-code --dir .    connect a client to a directory
      armarium console --open                 look at everything in the browser
      armarium audit --last 20                list the calls of agents
      armarium registry files                 list files with their findings
      armarium doctor                         check the installation

    \b
    For several directories and several users:
      armarium config print --dir . > armarium.yaml
      armarium serve --config armarium.yaml
    """
    if print_version:
        version()
        raise typer.Exit
    show_help(context)


@app.command()
@takes_directory_flags
def up(
    context: typer.Context,
    directory: Annotated[Path, Argument(metavar="DIR", help="Directory to serve.", show_default=False)] = Path(),
    write: Write = False,
    wanted: WantedCapabilities = None,
    port: Annotated[
        int | None,
        Option(metavar="N", min=0, max=65535, help="Port to listen on. [default: 8091, or a free one]"),
    ] = None,
    host: Address = None,
    auth: Annotated[
        str | None,
        Option(metavar="MODE", help="auto: a generated token; file:PATH: the token in a file; none: no token."),
    ] = None,
    name: Annotated[str, Option(metavar="NAME", help="Name of the directory for agents.")] = "workspace",
    log_level: LogLevel = None,
    as_json: AsJson = False,
) -> None:
    """Serve one directory over HTTP, and print how to connect.

    The registry of findings and issues is stored in DIR/.armarium. Agents may change it without --write, because it is
    not one of your files. If it cannot be opened, that is reported and the directory is served without it.

    \b
    armarium up                    this directory, read-only
    armarium up src --write        agents may change files in src
    armarium up --json | jq .url   for programs
    """
    from armarium.surfaces.cli import start

    flags = {"server.port": port, "server.host": host, "security.auth": auth, "telemetry.log_level": log_level}
    settings = start.directory_settings(directory, write=write, wanted=wanted, name=name, flags=flags)
    serve_directory = partial(start.up, context.obj, directory, settings, name=name, write=write, as_json=as_json)
    command.run_until_interrupted(serve_directory)


@app.command()
def serve(
    context: typer.Context,
    config: ConfigFile = None,
    host: Address = None,
    port: Port = None,
    trust: Annotated[bool, Option("--trust", help="Trust the armarium.yaml in this directory.")] = False,
    log_level: LogLevel = None,
    as_json: AsJson = False,
) -> None:
    """Serve the capabilities in a settings file over HTTP.

    \b
    armarium serve                          with ./armarium.yaml
    armarium serve --config team.yaml --port 9000
    ARMARIUM_SERVER__PORT=9000 armarium serve
    """
    from armarium.surfaces.cli import start

    flags = {"server.port": port, "server.host": host, "telemetry.log_level": log_level}
    settings = context.obj.load_settings(config, flags, trust=trust)
    command.run_until_interrupted(partial(start.serve, context.obj, settings, config or CONFIG_FILE, as_json=as_json))


@app.command()
@takes_directory_flags
def stdio(
    context: typer.Context,
    directory: Annotated[Path | None, Argument(metavar="DIR", help="Directory to serve. [default: this one]")] = None,
    config: Annotated[Path | None, Option(metavar="FILE", help="YAML file of settings, instead of DIR.")] = None,
    write: Write = False,
    wanted: WantedCapabilities = None,
    log_level: LogLevel = None,
) -> None:
    """Serve the client that started this process, over stdio.

    `armarium install` configures clients to run this. Standard output carries MCP messages, so there is no --json.
    """
    from armarium.surfaces.cli import start

    flags = {"telemetry.log_level": log_level}
    if config is None:
        settings = start.directory_settings(directory or Path(), write=write, wanted=wanted, flags=flags)
    elif directory is not None or write:
        raise Misuse("DIR and --write do not go with --config", hint="name directories in the file's sandbox.roots")
    else:
        settings = context.obj.load_settings(config, flags)
    command.run_until_interrupted(partial(start.stdio, context.obj, settings))


@app.command()
def console(
    port: Annotated[int | None, Option(metavar="N", help="The server on this port. [default: the newest]")] = None,
    open_browser: Annotated[bool, Option("--open", help="Open it in the browser.")] = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the address of the web console of a running server.

    At a terminal it is a link that logs in as the user who runs the server. It works once, for five minutes.

    \b
    armarium console           print a link
    armarium console --open    open it in the browser
    """
    import os

    from armarium.command_line.options import settings_file
    from armarium.foundation.settings.loader import load_settings
    from armarium.settings import Settings
    from armarium.surfaces.cli.console import show_console

    settings = load_settings(Settings, settings_file(config), environ=os.environ)
    show_console(settings.state_path(), port=port, open_browser=open_browser, as_json=as_json)


@app.command()
def audit(
    tool: Annotated[str | None, Option(metavar="NAME", help="Only calls of this tool.")] = None,
    capability: Annotated[str | None, Option(metavar="NAME", help="Only calls of this capability.")] = None,
    principal: Annotated[str | None, Option(metavar="NAME", help="Only calls of this caller.")] = None,
    root: Annotated[str | None, Option(metavar="NAME", help="Only calls in this root.")] = None,
    path: Annotated[str | None, Option(metavar="PREFIX", help="Only paths with this prefix.")] = None,
    outcome: Annotated[Literal["success", "error"] | None, Option(help="Only calls with this outcome.")] = None,
    code: Annotated[str | None, Option(metavar="CODE", help="Only errors with this code.")] = None,
    status: Annotated[
        str | None, Option(metavar="STATUS", help="Only calls with this outcome or error code, as in GET /api/audit.")
    ] = None,
    since: Annotated[
        str | None,
        Option(metavar="WHEN", help="Only calls since then: 15m, 2h or 1d ago, or a date and time (ISO 8601)."),
    ] = None,
    until: Annotated[str | None, Option(metavar="WHEN", help="Only calls before then; same format as --since.")] = None,
    last: Annotated[int, Option(metavar="N", min=0, help="At most the newest N calls.")] = 100,
    follow: Annotated[bool, Option("--follow", "-f", help="Print new calls until Ctrl-C.")] = False,
    config: ConfigFile = None,
    file: Annotated[
        Path | None, Option(metavar="SQLITE", help="Audit log to read, instead of the one in the settings.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the audit log: one line for each call.

    \b
    armarium audit --since 1h --outcome error
    armarium audit --tool write_file --path src/ --json
    armarium audit --follow
    """
    from armarium.foundation.audit import AuditFilter
    from armarium.surfaces.cli import audit as audit_log

    wanted = AuditFilter(
        tool=tool,
        capability=capability,
        principal=principal,
        root=root,
        path_prefix=path,
        outcome=outcome,
        code=code,
        status=status,
        since=audit_log.parse_time(since, "--since"),
        until=audit_log.parse_time(until, "--until"),
    )
    log = audit_log.audit_file(file, config)
    if not follow:
        audit_log.show_calls(log, wanted, last=last, as_json=as_json)
        return
    command.run_until_interrupted(lambda: audit_log.follow_calls(log, wanted, last=last, as_json=as_json))


@app.command()
def doctor(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Check everything that a server needs.

    Prints a hint for each problem. The exit code is 1 if a check fails.
    """
    from armarium.surfaces.cli.doctor import run_checks, show_results

    results = run_checks(config)
    show_results(results, as_json=as_json)
    if any(result.state == "fail" for result in results):
        raise typer.Exit(FAILED)


@app.command("eval")
def evaluate(
    dataset: Annotated[Path, Argument(metavar="DATASET", help="Directory with the judged set.")],
    index: Annotated[
        Literal["auto", "text", "code"],
        Option(help="Index the documents as text or as code; auto detects which."),
    ] = "auto",
    limit: Annotated[int | None, Option(metavar="N", min=1, help="Only the first N queries.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure retrieval quality on a judged set.

    \b
    DATASET contains docs.jsonl (id, title, text), queries.jsonl (id, text) and qrels.tsv (query, document, grade).
    Lexical search, semantic search and their rank fusion are measured separately, by nDCG, recall and MRR.
    Each document is one chunk of one index: splitting files and merging two indexes are not measured.

    \b
    armarium eval ./my-judged-set
    armarium eval ./my-judged-set --index code --json
    """
    from armarium.surfaces.cli.evaluate import evaluate_set

    command.enable_garbage_collection()
    evaluate_set(dataset, index=index, limit=limit, as_json=as_json)


@config_app.callback(invoke_without_command=True)
def config(context: typer.Context) -> None:
    """Print settings and schemas."""
    show_help(context)


@config_app.command("print")
def config_print(
    config: ConfigFile = None,
    directory: Annotated[
        Path | None, Option("--dir", metavar="DIR", help="Print the settings of `armarium up DIR` instead.")
    ] = None,
    write: Write = False,
    as_json: AsJson = False,
) -> None:
    """Print the settings in effect as YAML.

    They combine defaults, file and environment, without secrets. The output is a valid settings file.

    \b
    armarium config print --dir . > armarium.yaml    create a settings file
    armarium config print --config armarium.yaml     check a settings file
    """
    from armarium.surfaces.cli import start

    settings = start.effective_settings(config, directory, write=write)
    show_json(settings) if as_json else show(start.as_yaml(settings))


@app.command()
def install(
    client: Annotated[
        Literal["claude-desktop", "claude-code", "cursor", "vscode", "windsurf"],
        Argument(help="Client to configure."),
    ],
    directory: Annotated[
        Path | None,
        Option("--dir", metavar="DIR", help="The client starts `armarium stdio DIR`. [default: this one]"),
    ] = None,
    write: Write = False,
    config: Annotated[
        Path | None, Option(metavar="FILE", help="The client starts `armarium stdio --config FILE`.")
    ] = None,
    url: Annotated[str | None, Option(metavar="URL", help="The client connects to this running server.")] = None,
    token_file: Annotated[
        Path | None, Option(metavar="FILE", help="File with the token for --url, as printed by `armarium up`.")
    ] = None,
    scope: Annotated[
        Literal["user", "project"] | None,
        Option(help="For all your projects, or for this one. [default: project for claude-code and vscode]"),
    ] = None,
    name: Annotated[str, Option(metavar="NAME", help="Name of the server in the client.")] = "armarium",
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the change without writing it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add the server to the MCP configuration of a client.

    Prints the entry and asks before writing. Other entries are preserved, and the previous file is saved as .bak.

    \b
    armarium install claude-desktop --dir ~/notes
    armarium install cursor --url http://127.0.0.1:8091/mcp --token-file ~/.local/state/armarium/secret.token
    armarium install vscode --dir . --write --dry-run
    """
    from armarium.surfaces.cli import install as installation

    server = installation.wanted_server(client, directory, config, url, token_file, write=write)
    plan = installation.plan(client, server, name=name, scope=scope)
    installation.apply(plan, yes=yes, dry_run=dry_run, as_json=as_json)


@app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version."""
    from armarium import __version__

    if not as_json:
        show(f"armarium {__version__}")
        return
    from importlib.metadata import version as installed
    from platform import python_version

    show_json({"armarium": __version__, "mcp": installed("mcp"), "python": python_version()})


def main() -> None:
    command.main(run)


def run(arguments: Sequence[str]) -> int:
    style = next((each.error_style for each in MANIFESTS if [each.name] == [*arguments[:1]]), None)
    reporter = command.ErrorReporter(partial(report, as_json=command.wants_json(arguments), style=style))
    return command.run_app(app, "armarium", arguments, reporter, Host())


if __name__ == "__main__":
    main()
