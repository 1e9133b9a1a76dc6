"""`armarium install`: merges an entry into a client's MCP configuration, and replaces the file atomically."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from armarium.command_line.output import Misuse, confirm, say, show, show_json
from armarium.foundation.errors import ArmariumError
from armarium.foundation.files.state_files import replace_file
from armarium.foundation.security.identity import read_token
from armarium.surfaces.cli.clients import CLIENTS, TRANSPORT_KEYS, Client, Entry, RunningServer, Scope

_SURROGATE_ESCAPES = {code: f"\\u{code:04x}" for code in range(0xD800, 0xE000)}


class UnusableConfiguration(ArmariumError, code="CLIENT_CONFIG_INVALID"):
    """The client's configuration file cannot be read, parsed or written. It was not changed."""


@dataclass(frozen=True, slots=True)
class Plan:
    client: Client
    name: str
    scope: Scope
    file: Path
    entry: Entry
    before: bytes | None
    """The current content of the file; None if it does not exist."""
    after: bytes
    secret: str | None
    """The token, if the file will contain it."""
    notes: tuple[str, ...]

    def shown(self, value: Any, indent: int | None = None) -> str:
        """A value as JSON, with the token masked."""
        text = json.dumps(value, indent=indent)
        return text.replace(self.secret, "<token>") if self.secret else text


def wanted_server(
    client: str, directory: Path | None, config: Path | None, url: str | None, token_file: Path | None, *, write: bool
) -> RunningServer | Entry:
    """The server that the options describe: one that already runs, or the entry of one that the client starts."""
    if url is not None and CLIENTS[client].url_key is None:
        if directory is None and config is None:
            raise Misuse(
                f"{CLIENTS[client].title} starts its servers itself and does not support --url",
                hint="use --dir DIR, and it starts `armarium stdio DIR`",
            )
        say(f"{CLIENTS[client].title} starts its servers itself, so --url is ignored and stdio is used")
        url = token_file = None
    options = {"--dir": directory, "--config": config, "--url": url}
    given = [option for option, value in options.items() if value is not None]
    if len(given) > 1:
        raise Misuse(f"{' and '.join(given)} exclude each other", hint="each determines what the client connects to")
    if url is not None:
        if write:
            raise Misuse("--write does not go with --url", hint="the running server decides what may be written")
        if not url.startswith(("http://", "https://")):
            raise Misuse(f"--url: {url!r} is not an address", hint="for example http://127.0.0.1:8091/mcp")
        return RunningServer(url, read_token(token_file.expanduser()) if token_file else None, token_file)
    if token_file is not None:
        raise Misuse("--token-file goes with --url", hint="over stdio there is no token")
    return _started_server(directory or Path(), config, write=write)


def _started_server(directory: Path, config: Path | None, *, write: bool) -> Entry:
    if config is not None and write:
        raise Misuse("--write does not go with --config", hint="the file says `read_only` for each root")
    served = Path(os.path.abspath((config or directory).expanduser()))
    if not (served.is_file() if config else served.is_dir()):
        raise Misuse(f"{served} is not a {'file' if config else 'directory'}", hint="check the path")
    command, *arguments = _own_command()
    what = ["--config", str(served)] if config else [str(served), *(["--write"] if write else [])]
    return {"command": command, "args": [*arguments, "stdio", *what]}


def _own_command() -> list[str]:
    """The command line of this program. It works in any directory and without the present environment."""
    beside = Path(sys.executable).with_name("armarium")
    return [str(beside)] if os.access(beside, os.X_OK) else [sys.executable, "-P", "-m", "armarium.surfaces.cli.main"]


def plan(client_name: str, server: RunningServer | Entry, *, name: str, scope: Scope | None) -> Plan:
    """Compute the new content of the client's configuration file, without writing it."""
    client = CLIENTS[client_name]
    chosen = scope or client.default_scope
    if chosen == "project" and client.project_file is None:
        raise Misuse(f"{client.title} has no configuration for a project", hint="leave out --scope")
    # Write the target of a symbolic link, so that the link remains.
    file = Path(os.path.realpath(client.user_file() if chosen == "user" else Path.cwd() / (client.project_file or "")))
    try:
        before = file.read_bytes()
    except FileNotFoundError:
        before = None
    except OSError as error:
        raise UnusableConfiguration(f"cannot read {file}: {error.strerror}") from error
    document = _parsed(before, file)
    entry, secret, notes = _entry_for(client, server, chosen)
    _merge(document, client, name, entry, file)
    if secret is None and isinstance(server, RunningServer) and server.token and client.token_input:
        _merge_input(document, client.token_input, file)
    if before is not None and _parsed(before, file) == document:
        after = before
    else:
        text = json.dumps(document, indent=2, ensure_ascii=False)
        # The file may contain unpaired surrogates as JSON escapes. UTF-8 cannot encode them, so they are escaped again.
        after = (text.translate(_SURROGATE_ESCAPES) + "\n").encode()
    return Plan(client, name, chosen, file, document[client.section][name], before, after, secret, notes)


def _entry_for(
    client: Client, server: RunningServer | Entry, scope: Scope
) -> tuple[Entry, str | None, tuple[str, ...]]:
    """The entry, the token if the entry contains it, and notes for the user."""
    if not isinstance(server, RunningServer):
        return client.entry("stdio", server), None, ()
    if server.token is None or scope == "user":
        return client.http_entry(server, server.token), server.token, ()
    # The file of a project is committed and shared, so it must not contain the token.
    token_file = shlex.quote(str(server.token_file))
    note = (
        f"{client.title} will ask for the token; it is in {server.token_file}"
        if client.token_input
        else f'start {client.title} with the token: export ARMARIUM_TOKEN="$(cat {token_file})"'
    )
    return client.http_entry(server, client.token_variable), None, (note,)


def _parsed(content: bytes | None, file: Path) -> dict[str, Any]:
    from armarium.surfaces.json.text import reject_constant

    text = (content or b"").decode("utf-8-sig", "surrogateescape")
    if not text.strip():
        return {}
    try:
        document = json.loads(text, object_pairs_hook=_unique_names, parse_constant=reject_constant)
    except ValueError as error:
        raise UnusableConfiguration(
            f"{file} is not plain JSON: {error}",
            hint="it was not changed; remove comments and trailing commas, and try again",
        ) from error
    if not isinstance(document, dict):
        raise UnusableConfiguration(f"{file} does not contain a JSON object", hint="it was not changed")
    return cast(dict[str, Any], document)


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse objects with duplicate names: parsing keeps only the last one, and writing would lose the others."""
    merged = dict(pairs)
    if len(merged) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return merged


def _merge(document: dict[str, Any], client: Client, name: str, entry: Entry, file: Path) -> None:
    servers = document.setdefault(client.section, {})
    existing = servers.get(name, {}) if isinstance(servers, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] any JSON
    if not isinstance(existing, dict):
        raise UnusableConfiguration(f"`{client.section}` in {file} is not an object", hint="it was not changed")
    own = {key: value for key, value in cast(Entry, existing).items() if key not in TRANSPORT_KEYS}
    servers[name] = entry | own


def _merge_input(document: dict[str, Any], definition: Entry, file: Path) -> None:
    inputs = document.setdefault("inputs", [])
    if not isinstance(inputs, list):
        raise UnusableConfiguration(f"`inputs` in {file} is not a list", hint="it was not changed")
    known = cast(list[Any], inputs)
    if not any(isinstance(each, dict) and cast(Entry, each).get("id") == definition["id"] for each in known):
        known.append(definition)


def apply(plan: Plan, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    described: dict[str, Any] = {
        "client": plan.client.title,
        "scope": plan.scope,
        "file": str(plan.file),
        "name": plan.name,
        "entry": json.loads(plan.shown(plan.entry)),
        "changed": plan.before != plan.after,
        "written": False,
        "backup": None,
        "notes": list(plan.notes),
    }
    fragment = plan.shown({plan.client.section: {plan.name: plan.entry}}, indent=2)
    say(f"{plan.client.title}, in {plan.file}:\n")
    (show if dry_run and not as_json else say)(fragment)
    say()
    if plan.before == plan.after:
        say("already configured; nothing to do")
    elif dry_run:
        say("nothing was written (--dry-run)")
    else:
        if not yes:
            confirm("Write it?", default=True, outcome="nothing was written", hint="add --yes, or --dry-run")
        described |= {"written": True, "backup": _write(plan)}
        say(f"written; {plan.client.activation}")
    for note in plan.notes:
        say(note)
    if as_json:
        show_json(described)


def _write(plan: Plan) -> str | None:
    """Replace the file atomically; return the path of the backup, if there was a file before."""
    backup = plan.file.with_name(f"{plan.file.name}.bak")
    try:
        plan.file.parent.mkdir(parents=True, exist_ok=True)
        if plan.before is None:
            replace_file(plan.file, plan.after, mode=0o600 if plan.secret else 0o666)
            return None
        mode = stat.S_IMODE(plan.file.stat().st_mode)
        _replace(backup, plan.before, mode)
        _replace(plan.file, plan.after, mode & 0o600 if plan.secret else mode)
    except OSError as error:
        raise UnusableConfiguration(f"cannot write {plan.file}: {error.strerror}") from error
    return str(backup)


def _replace(file: Path, content: bytes, mode: int) -> None:
    replace_file(file, content, mode=mode & 0o600)
    # The umask must not reduce the permissions that the file had.
    file.chmod(mode)
