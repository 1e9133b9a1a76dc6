"""Declares the `dir2mcp` command and its options."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from armarium.capabilities.corpus.commands import VERSION, exit_codes
from armarium.capabilities.corpus.commands.options import (
    AsJson,
    Common,
    ConfigFile,
    Directory,
    NonInteractive,
    Quiet,
    StateDirectory,
    takes_common_flags,
)
from armarium.capabilities.corpus.commands.output_mode import Manner, at_a_terminal
from armarium.command_line import run as command
from armarium.command_line.host import CommandHost
from armarium.command_line.output import Misuse, say, show, show_json
from armarium.foundation.errors import ArmariumError

# Commands import what they need when they run: a server must be up in a second, and most commands need little.

app = typer.Typer(
    name="dir2mcp",
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(rich_markup_mode=None)
app.add_typer(config_app, name="config")


@app.callback(invoke_without_command=True)
def dir2mcp(
    context: typer.Context,
    directory: Directory = None,
    config: ConfigFile = None,
    state_dir: StateDirectory = None,
    as_json: AsJson = False,
    non_interactive: NonInteractive = False,
    quiet: Quiet = False,
) -> None:
    """Ask questions of a directory, and let agents do so over MCP, with citations.

    \b
    Begin here:
      dir2mcp up                        serve this directory; it is indexed in the background
      dir2mcp ask "how do I deploy?"    one answer, here and now
      dir2mcp status                    how far indexing is
      dir2mcp config init               models, keys and what is read

    No key is needed: without one, everything stays on this machine.

    \b
    Exit codes: 0 it worked, 1 it failed, 2 wrong command line or settings, 3 the directory cannot be read,
    4 the address cannot be listened on, 5 the index cannot be loaded, 6 indexing cannot go on.
    """
    context.obj = Common(context.obj, directory, config, state_dir, as_json, non_interactive, quiet)
    if context.invoked_subcommand is None:
        show(context.get_help())


def _where(common: Common) -> Any:
    from armarium.capabilities.corpus.commands.settings_loader import Where

    return Where(common.directory or Path(), common.config, common.state_dir)


def _manner(common: Common) -> Manner:
    return Manner(common.as_json, common.quiet, interactive=not common.non_interactive and at_a_terminal())


@app.command()
@takes_common_flags
def up(
    common: Common,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one. [127.0.0.1:0]")
    ] = None,
    mcp_path: Annotated[str | None, typer.Option(metavar="PATH", help="Where MCP is spoken. [/mcp]")] = None,
    public: Annotated[bool, typer.Option("--public", help="Listen on every address (0.0.0.0); needs a token.")] = False,
    auth: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="auto: a token made once; file:PATH: the token in a file; none: no token."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", readable=False, help="Certificate with its chain, PEM.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", readable=False, help="The certificate's key, PEM.")
    ] = None,
    x402: Annotated[
        Literal["off", "on", "required"] | None, typer.Option(help="Payments; not available in this version. [off]")
    ] = None,
    x402_facilitator_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Who verifies and settles payments.")
    ] = None,
    x402_resource_base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="The server's public address in payment requirements.")
    ] = None,
    x402_network: Annotated[
        str | None, typer.Option(metavar="ID", help="Payment network, such as eip155:8453.")
    ] = None,
    x402_price: Annotated[str | None, typer.Option(metavar="PRICE", help="Price of a call, such as 0.001.")] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse every tool that changes something; there is none.")
    ] = False,
) -> None:
    """Serve a directory over MCP, and index it in the background.

    The server answers at once, from what is indexed by then. Stop it with Ctrl-C; the next start goes on from there.

    \b
    dir2mcp up                                       this directory, on a free port
    dir2mcp up --dir ~/notes --listen 127.0.0.1:8087
    dir2mcp up --json | jq -r 'select(.event == "connection").data.url'
    dir2mcp up --public --tls-cert cert.pem --tls-key key.pem

    Tokens are never given on the command line: use --auth file:PATH or the variable DIR2MCP_AUTH_TOKEN.
    """
    from armarium.capabilities.corpus.commands.up import up as serve

    flags = {
        "server.listen": listen,
        "server.mcp_path": mcp_path,
        "server.public": public or None,
        "x402.mode": x402,
        # `off` also takes back what the file of settings enabled.
        "x402.enabled": False if x402 == "off" else None,
        "x402.facilitator_url": x402_facilitator_url,
        "x402.resource_base_url": x402_resource_base_url,
        "x402.route_policy.tools_call.network": x402_network,
        "x402.route_policy.tools_call.price": x402_price,
    }
    flags |= _auth_flags(auth) | _tls_flags(tls_cert, tls_key)
    command.enable_garbage_collection()
    serve(common.host, _where(common), flags, _manner(common))


def _auth_flags(auth: str | None) -> dict[str, Any]:
    if auth is None:
        return {}
    mode, _, path = auth.partition(":")
    if auth in ("auto", "none"):
        return {"security.auth.mode": auth, "security.auth.token_file": ""}
    if mode == "file" and path:
        return {"security.auth.mode": "file", "security.auth.token_file": _absolute(Path(path))}
    # Not quoted: it may be a token that somebody gave by mistake.
    raise Misuse("--auth takes auto, none or file:PATH", hint="a token itself never goes on the command line")


def _tls_flags(certificate: Path | None, key: Path | None) -> dict[str, Any]:
    if certificate is None and key is None:
        return {}
    given = {"server.tls.cert_file": certificate, "server.tls.key_file": key}
    paths = {name: _absolute(path) for name, path in given.items() if path is not None}
    return {"server.tls.enabled": True} | paths


def _absolute(path: Path) -> str:
    """Flags are relative to where the command is run, files of settings to the directory that is served."""
    return os.path.abspath(path.expanduser())


@app.command()
@takes_common_flags
def status(common: Common) -> None:
    """Show how far indexing is, from what is on disk.

    Works beside a running server and without one.
    """
    from armarium.capabilities.corpus.commands.status import status as tell

    tell(_where(common), _manner(common))


@app.command()
@takes_common_flags
def ask(
    common: Common,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What you want to know.")],
    k: Annotated[
        int | None, typer.Option("--k", "-k", metavar="N", min=1, max=50, help="How many passages to look at.")
    ] = None,
    mode: Annotated[
        Literal["answer", "search_only"], typer.Option(help="An answer in words, or the passages alone.")
    ] = "answer",
    index: Annotated[
        Literal["auto", "text", "code", "both"], typer.Option(help="Where to look: prose, source code, or both.")
    ] = "auto",
    path_prefix: Annotated[str | None, typer.Option(metavar="PATH", help="Only files below this path.")] = None,
    file_glob: Annotated[str | None, typer.Option(metavar="GLOB", help="Only files such as src/**/*.py.")] = None,
    doc_type: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="Only documents of this type (code, md, pdf …); repeatable."),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0, help="How long to wait for embeddings that are not made yet; words come first."
        ),
    ] = 5.0,
) -> None:
    """Answer a question from the directory, with citations.

    In a directory that is not indexed yet, it is indexed first: the answer comes as soon as everything can be found by
    its words, and what is embedded by then is found by its meaning, too. No server is needed, and none is disturbed.

    \b
    dir2mcp ask "where is the retry limit set?"
    dir2mcp ask "open risks" --doc-type pdf --k 20
    dir2mcp ask "parse_config" --index code --mode search_only --json
    """
    from armarium.capabilities.corpus.commands.ask import Question
    from armarium.capabilities.corpus.commands.ask import ask as answer

    if not question.strip():
        raise Misuse("the question is empty", hint='dir2mcp ask "how do I deploy?"')
    wanted = Question(
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
    answer(common.host, _where(common), wanted, _manner(common))


@app.command()
@takes_common_flags
def reindex(common: Common) -> None:
    """Build the index anew, and end when it is complete.

    Rarely needed: `up` notices what changed by itself. Use it after changing models, or when the index is damaged.
    """
    from armarium.capabilities.corpus.commands.ask import reindex as build

    command.enable_garbage_collection()
    build(_where(common), _manner(common))


@config_app.callback(invoke_without_command=True)
def config(context: typer.Context) -> None:
    """Make or see the settings."""
    if context.invoked_subcommand is None:
        show(context.get_help())


@config_app.command("init")
@takes_common_flags
def config_init(common: Common) -> None:
    """Make or change .dir2mcp.yaml by answering questions.

    Asks for models, keys and what is read; keys are typed unseen and kept in the keychain, a private file, or nowhere.
    What else is in the file stays. Without a terminal, or with --non-interactive, nothing is asked: a file to begin
    with is written, and one that is there is checked.
    """
    from armarium.capabilities.corpus.commands import wizard

    manner = _manner(common)
    written = wizard.run_wizard(_where(common)) if manner.interactive else wizard.write_default_file(_where(common))
    if common.as_json:
        show_json({"config_file": str(written.file), "changed": written.changed})
    elif not common.quiet:
        say(f"{'Wrote' if written.changed else 'Nothing to change in'} {written.file}. Next: dir2mcp up")


@config_app.command("print")
@takes_common_flags
def config_print(common: Common) -> None:
    """Print the settings in effect: defaults, file and environment together, without keys.

    \b
    dir2mcp config print > .dir2mcp.yaml    begin a file of your own
    """
    from armarium.capabilities.corpus.commands import snapshot
    from armarium.capabilities.corpus.commands.settings_loader import load

    loaded = load(_where(common))
    values, sources = snapshot.effective(loaded), snapshot.secret_sources(loaded)
    if common.as_json:
        show_json({"config": values, "secret_sources": sources})
        return
    show(snapshot.as_yaml(values).rstrip())
    for setting, found in sources.items():
        show(f"# {setting}: {found['name']}, from {found['source']} ({found['place']})")


@app.command()
@takes_common_flags
def version(common: Common) -> None:
    """Print the version."""
    from armarium import __version__

    if common.as_json:
        show_json({"dir2mcp": VERSION, "armarium": __version__})
    else:
        show(f"dir2mcp {VERSION} (armarium {__version__})")


def main(host: CommandHost) -> NoReturn:
    """The `dir2mcp` program."""
    command.main(lambda arguments: run(arguments, host))


def run(arguments: Sequence[str], host: CommandHost) -> int:
    """Run one command line; return its exit code."""
    report = partial(_report, as_json=command.wants_json(arguments))
    return command.run_app(app, "dir2mcp", arguments, command.ErrorReporter(report, exit_codes.known), host)


def _report(error: ArmariumError, *, as_json: bool) -> int:
    if as_json:
        from armarium.capabilities.corpus.commands.reports import fatal_line

        show(fatal_line(error))
    for line in exit_codes.error_lines(error):
        say(line)
    return exit_codes.exit_code(error)
