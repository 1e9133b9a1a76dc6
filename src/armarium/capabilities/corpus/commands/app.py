"""The commands of `dir2mcp` and their options."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from armarium.capabilities.corpus.commands import VERSION, exit_codes
from armarium.capabilities.corpus.commands.options import CommonOptions, takes_common_flags
from armarium.command_line import run as command
from armarium.command_line.host import CommandHost
from armarium.command_line.output import Misuse, say, show, show_help, show_json
from armarium.foundation.errors import ArmariumError

# Commands import what they need when they run, because most need little and `up` must start within a second.

app = typer.Typer(
    name="dir2mcp",
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(rich_markup_mode=None)
app.add_typer(config_app, name="config")


@app.callback(invoke_without_command=True)
@takes_common_flags
def dir2mcp(common: CommonOptions, context: typer.Context) -> None:
    """Ask questions of a directory, and let agents do so over MCP, with citations.

    \b
    Start here:
      dir2mcp up                        serve this directory and index it in the background
      dir2mcp ask "how do I deploy?"    answer one question
      dir2mcp status                    show the progress of indexing
      dir2mcp config init               choose models, keys and what to index

    No key is required. Without a key, all data stays on this machine.

    \b
    Exit codes: 0 success, 1 error, 2 invalid command line or settings, 3 directory not readable,
    4 cannot listen on the address, 5 cannot load the index, 6 indexing failed.
    """
    context.obj = common
    show_help(context)


@app.command()
@takes_common_flags
def up(
    common: CommonOptions,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 selects a free port. [127.0.0.1:0]"),
    ] = None,
    mcp_path: Annotated[str | None, typer.Option(metavar="PATH", help="Path of the MCP endpoint. [/mcp]")] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Listen on all addresses (0.0.0.0); requires a token.")
    ] = False,
    auth: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="auto: a generated token; file:PATH: the token in a file; none: no token."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", readable=False, help="Certificate with its chain (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", readable=False, help="Private key of the certificate (PEM).")
    ] = None,
    x402: Annotated[
        Literal["off", "on", "required"] | None, typer.Option(help="Payments; not available in this version. [off]")
    ] = None,
    x402_facilitator_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Service that verifies and settles payments.")
    ] = None,
    x402_resource_base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Public URL of the server in payment requirements.")
    ] = None,
    x402_network: Annotated[
        str | None, typer.Option(metavar="ID", help="Payment network, for example eip155:8453.")
    ] = None,
    x402_price: Annotated[str | None, typer.Option(metavar="PRICE", help="Price of a call, for example 0.001.")] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Disable tools that change files; there are none.")
    ] = False,
) -> None:
    """Serve a directory over MCP, and index it in the background.

    The server answers immediately, from what is indexed so far. Stop it with Ctrl-C; the next start resumes indexing.

    \b
    dir2mcp up                                       serve this directory on a free port
    dir2mcp up --dir ~/notes --listen 127.0.0.1:8087
    dir2mcp up --json | jq -r 'select(.event == "connection").data.url'
    dir2mcp up --public --tls-cert cert.pem --tls-key key.pem

    Do not pass a token on the command line: use --auth file:PATH or the variable DIR2MCP_AUTH_TOKEN.
    """
    from armarium.capabilities.corpus.commands.up import up as serve

    flags = {
        "server.listen": listen,
        "server.mcp_path": mcp_path,
        "server.public": public or None,
        "x402.mode": x402,
        # `off` overrides `x402.enabled` of the settings file.
        "x402.enabled": False if x402 == "off" else None,
        "x402.facilitator_url": x402_facilitator_url,
        "x402.resource_base_url": x402_resource_base_url,
        "x402.route_policy.tools_call.network": x402_network,
        "x402.route_policy.tools_call.price": x402_price,
    }
    flags |= _auth_flags(auth) | _tls_flags(tls_cert, tls_key)
    command.enable_garbage_collection()
    serve(common, flags)


def _auth_flags(auth: str | None) -> dict[str, Any]:
    if auth is None:
        return {}
    mode, _, path = auth.partition(":")
    if auth in ("auto", "none"):
        return {"security.auth.mode": auth, "security.auth.token_file": ""}
    if mode == "file" and path:
        return {"security.auth.mode": "file", "security.auth.token_file": _absolute(Path(path))}
    # The value is not quoted, because it may be a token passed by mistake.
    raise Misuse("--auth takes auto, none or file:PATH", hint="do not pass a token on the command line")


def _tls_flags(certificate: Path | None, key: Path | None) -> dict[str, Any]:
    if certificate is None and key is None:
        return {}
    given = {"server.tls.cert_file": certificate, "server.tls.key_file": key}
    paths = {name: _absolute(path) for name, path in given.items() if path is not None}
    return {"server.tls.enabled": True} | paths


def _absolute(path: Path) -> str:
    """Paths in flags are relative to the working directory, those in settings files to the served directory."""
    return os.path.abspath(path.expanduser())


@app.command()
@takes_common_flags
def status(common: CommonOptions) -> None:
    """Show the progress of indexing, as stored on disk.

    Works with and without a running server.
    """
    from armarium.capabilities.corpus.commands.status import status as show_status

    show_status(common)


@app.command()
@takes_common_flags
def ask(
    common: CommonOptions,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question.")],
    k: Annotated[
        int | None, typer.Option("--k", "-k", metavar="N", min=1, max=50, help="How many chunks to retrieve.")
    ] = None,
    mode: Annotated[
        Literal["answer", "search_only"], typer.Option(help="Answer the question, or only list the chunks found.")
    ] = "answer",
    index: Annotated[
        Literal["auto", "text", "code", "both"], typer.Option(help="Index to search: text, code, or both.")
    ] = "auto",
    path_prefix: Annotated[str | None, typer.Option(metavar="PATH", help="Search only below this path.")] = None,
    file_glob: Annotated[
        str | None, typer.Option(metavar="GLOB", help="Search only matching files, for example src/**/*.py.")
    ] = None,
    doc_type: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="Search only documents of this type (code, md, pdf …); repeatable."),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="How long to wait for missing embeddings, after lexical indexing."),
    ] = 5.0,
) -> None:
    """Answer a question from the directory, with citations.

    A directory without an index is indexed first. The answer comes once the lexical index is complete; semantic search
    covers the chunks embedded by then. Needs no server, and does not affect a running one.

    \b
    dir2mcp ask "where is the retry limit set?"
    dir2mcp ask "open risks" --doc-type pdf --k 20
    dir2mcp ask "parse_config" --index code --mode search_only --json
    """
    from armarium.capabilities.corpus.commands.ask import AskRequest
    from armarium.capabilities.corpus.commands.ask import ask as answer

    if not question.strip():
        raise Misuse("the question is empty", hint='dir2mcp ask "how do I deploy?"')
    request = AskRequest(
        text=question,
        k=k,
        mode=mode,
        index=index,
        path_prefix=path_prefix,
        file_glob=file_glob,
        doc_types=tuple(doc_type or ()),
        wait_s=wait,
    )
    command.enable_garbage_collection()
    answer(common, request)


@app.command()
@takes_common_flags
def reindex(common: CommonOptions) -> None:
    """Rebuild the index, and exit when it is complete.

    Rarely needed, because `up` detects changes. Use it after changing models, or if the index is damaged.
    """
    from armarium.capabilities.corpus.commands.ask import reindex as rebuild

    command.enable_garbage_collection()
    rebuild(common)


@config_app.callback(invoke_without_command=True)
def config(context: typer.Context) -> None:
    """Create or show the settings."""
    show_help(context)


@config_app.command("init")
@takes_common_flags
def config_init(common: CommonOptions) -> None:
    """Create or change .dir2mcp.yaml interactively.

    Asks for models, keys and what to index. Keys are not echoed; they are stored in the keychain, in a private file, or
    not at all. Other content of the file is preserved. Without a terminal, or with --non-interactive, it asks nothing:
    it creates a default file, or validates the existing one.
    """
    from armarium.capabilities.corpus.commands import wizard

    setup = wizard.run_wizard if common.interactive else wizard.write_default_file
    file, changed = setup(common.location)
    if common.as_json:
        show_json({"config_file": str(file), "changed": changed})
    elif not common.quiet:
        say(f"{'Wrote' if changed else 'No changes to'} {file}. Next: dir2mcp up")


@config_app.command("print")
@takes_common_flags
def config_print(common: CommonOptions) -> None:
    """Print the effective settings, from defaults, file and environment, without keys.

    \b
    dir2mcp config print > .dir2mcp.yaml    create a settings file
    """
    from armarium.capabilities.corpus.commands import snapshot
    from armarium.capabilities.corpus.commands.settings_loader import load

    loaded = load(common.location)
    values, sources = snapshot.effective_values(loaded), snapshot.secret_sources(loaded)
    if common.as_json:
        show_json({"config": values, "secret_sources": sources})
        return
    show(snapshot.as_yaml(values).rstrip())
    for setting, found in sources.items():
        show(f"# {setting}: {found['name']}, from {found['source']} ({found['place']})")


@app.command()
@takes_common_flags
def version(common: CommonOptions) -> None:
    """Print the version."""
    from armarium import __version__

    if common.as_json:
        show_json({"dir2mcp": VERSION, "armarium": __version__})
    else:
        show(f"dir2mcp {VERSION} (armarium {__version__})")


def main(host: CommandHost) -> NoReturn:
    command.main(lambda arguments: run(arguments, host))


def run(arguments: Sequence[str], host: CommandHost) -> int:
    """Run one command line and return its exit code."""
    report = partial(_report, as_json=command.wants_json(arguments))
    return command.run_app(app, "dir2mcp", arguments, command.ErrorReporter(report, exit_codes.as_known_error), host)


def _report(error: ArmariumError, *, as_json: bool) -> int:
    if as_json:
        from armarium.capabilities.corpus.commands.progress.reports import fatal_line

        show(fatal_line(error))
    for line in exit_codes.error_lines(error):
        say(line)
    return exit_codes.exit_code(error)
