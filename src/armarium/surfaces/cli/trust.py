"""`armarium trust`: confirms the sensitive settings and the state in a directory, and lists and revokes confirmations.

Also decides whether an `armarium.yaml` that nobody named may be used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument

from armarium.assembly import MANIFESTS
from armarium.command_line.options import CONFIG_FILE, AsJson
from armarium.command_line.output import count, printable, say, show, show_help, show_json

if TYPE_CHECKING:
    from armarium.foundation.security.trust import Confirmable
    from armarium.foundation.settings.model import CoreSettings

_HARMLESS = frozenset({
    "limits", "pipe", "sessions", "telemetry.log_level",
    "corpus.chunking", "corpus.rag", "corpus.path_excludes",
})  # fmt: skip
"""Settings that neither send, nor spend, nor listen, nor execute, nor show files. All others must be confirmed."""

trust_app = typer.Typer(rich_markup_mode=None)

Directory = Annotated[Path, Argument(metavar="DIR", help="The directory.", show_default=False)]


@trust_app.callback(invoke_without_command=True)
def trust(context: typer.Context) -> None:
    """Decide which directories may set where text is sent, who may connect, and what is run.

    \b
    The files of a directory may come from anybody. Until you trust the directory, its .dir2mcp.yaml and armarium.yaml
    cannot set addresses, keys, ${VARIABLES}, authentication or programs, and state that others wrote is not used.
    A later change of such a setting asks again. A file that you name with --config is trusted.

    \b
    armarium trust add .        trust what the files here say now
    armarium trust list
    armarium trust revoke .
    """
    show_help(context)


@trust_app.command()
def add(directory: Directory = Path(), as_json: AsJson = False) -> None:
    """Trust the settings and the state that are in a directory now, and print them."""
    from armarium.command_line.trust import described
    from armarium.foundation.security.trust import Confirmations

    confirmations = Confirmations()
    added = [found for found in _confirmables(directory.expanduser()) if found.values]
    for found in added:
        found.accept()
        confirmations.add(found.path, found.values)
    if as_json:
        show_json([{"file": str(found.path), "settings": sorted(found.values)} for found in added])
        return
    for found in added:
        say("\n".join([f"trusted {printable(str(found.path))}:", *described(found.values)]))
    if not added:
        say(f"nothing in {printable(str(directory))} needs trust")


@trust_app.command("list")
def list_trusted(as_json: AsJson = False) -> None:
    """List the files that you trusted."""
    from armarium.foundation.security.trust import Confirmations

    trusted = Confirmations().all()
    if as_json:
        show_json(trusted)
        return
    if not trusted:
        say("no directory is trusted")
    for entry in trusted:
        show(f"{printable(entry['file'])}  ({count(len(entry['settings']), 'setting')}, {entry['confirmed_at']})")


@trust_app.command()
def revoke(directory: Directory = Path(), as_json: AsJson = False) -> None:
    """No longer trust a directory, or a file in it. Running servers keep their settings."""
    from armarium.foundation.security.trust import Confirmations

    revoked = Confirmations().revoke(directory.expanduser())
    if as_json:
        show_json({"revoked": revoked})
        return
    for file in revoked:
        say(f"revoked {printable(file)}")
    if not revoked:
        say(f"nothing in {printable(str(directory))} was trusted")


def require_trusted_files(settings: CoreSettings, config: Path | None, *, granted: bool = False) -> None:
    """Raise unless the user trusts the files of the working directory that the settings come from and use. A file that
    `--config` names is trusted, and so are the files in its directory."""
    from armarium.command_line.trust import require_trust
    from armarium.settings import configured

    require_trusted_settings(config, granted=granted)
    here = Path.cwd()
    if config is not None and config.absolute().parent.resolve() == here.resolve():
        return
    for manifest, section in configured(settings):
        for found in manifest.confirmable_files(here, section):
            require_trust(found, granted=granted, ask=_at_terminal())


def require_trusted_settings(config: Path | None, *, granted: bool = False) -> None:
    """Raise unless the user trusts the `armarium.yaml` of the working directory, or named another file."""
    from armarium.command_line.trust import require_trust

    if config is None and os.path.lexists(CONFIG_FILE):
        require_trust(_settings_to_confirm(CONFIG_FILE), granted=granted, ask=_at_terminal())


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _confirmables(directory: Path) -> Iterator[Confirmable]:
    if os.path.lexists(file := directory / CONFIG_FILE):
        yield _settings_to_confirm(file)
    for manifest in MANIFESTS:
        yield from manifest.confirmable_files(directory, None)


def _settings_to_confirm(file: Path) -> Confirmable:
    from armarium.command_line.trust import require_regular
    from armarium.foundation.security.trust import Confirmable, sensitive_settings
    from armarium.foundation.settings.loader import read_yaml
    from armarium.settings import Settings

    require_regular(file)
    defaults = Settings().model_dump(mode="json")
    return Confirmable(file, sensitive_settings(read_yaml(file), defaults, _HARMLESS), file.parent)
