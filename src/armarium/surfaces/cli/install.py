"""Writes a client's MCP configuration: shown first, merged into what is there, replaced in one step."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never, cast

import typer

from armarium.command_line.output import Misuse, say, show, show_json
from armarium.foundation.errors import ArmariumError
from armarium.foundation.identity import read_token
from armarium.surfaces.cli.clients import CLIENTS, TRANSPORT_KEYS, Client, Entry, RunningServer, Scope, StartedServer

_SURROGATES = {code: f"\\u{code:04x}" for code in range(0xD800, 0xE000)}


class UnusableConfiguration(ArmariumError):
    """The client's file is there and cannot be merged into, so it was left as it is."""

    code = "CLIENT_CONFIG_INVALID"


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be written where."""

    client: Client
    name: str
    scope: Scope
    file: Path
    entry: Entry
    before: bytes | None
    """The file as it is; None where there is none."""
    after: bytes
    secret: str | None
    """The token, if the file will hold it."""
    notes: tuple[str, ...]

    @property
    def changes(self) -> bool:
        return self.before is None or self.before != self.after

    @property
    def backup(self) -> Path:
        return self.file.with_name(f"{self.file.name}.bak")

    def without_secret(self, text: str) -> str:
        """The text as it may be shown."""
        return text.replace(self.secret, "<token>") if self.secret else text


def wanted_server(
    client: str, directory: Path | None, config: Path | None, url: str | None, token_file: Path | None, *, write: bool
) -> StartedServer | RunningServer:
    """The server the options describe: one to start over a directory or a file of settings, or one that runs."""
    if url is not None and CLIENTS[client].url_key is None:
        if directory is None and config is None:
            raise Misuse(
                f"{CLIENTS[client].title} starts its servers itself and takes no --url",
                hint="use --dir DIR, and it starts `armarium stdio DIR`",
            )
        say(f"{CLIENTS[client].title} starts its servers itself, so --url is left out and stdio is used")
        url = token_file = None
    _only_one({"--dir": directory, "--config": config, "--url": url})
    if url is not None:
        if write:
            raise Misuse("--write does not go with --url", hint="the running server decides what may be written")
        if not url.startswith(("http://", "https://")):
            raise Misuse(f"--url: {url!r} is not an address", hint="for instance http://127.0.0.1:8091/mcp")
        return RunningServer(url, read_token(token_file.expanduser()) if token_file else None, token_file)
    if token_file is not None:
        raise Misuse("--token-file goes with --url", hint="over stdio there is no token")
    return _started(directory or Path(), config, write=write)


def _only_one(options: dict[str, object | None]) -> None:
    given = [option for option, value in options.items() if value is not None]
    if len(given) > 1:
        raise Misuse(f"{' and '.join(given)} exclude each other", hint="each says what the client connects to")


def _started(directory: Path, config: Path | None, *, write: bool) -> StartedServer:
    if config is not None and write:
        raise Misuse("--write does not go with --config", hint="the file says `read_only` for each root")
    served = Path(os.path.abspath((config or directory).expanduser()))
    if not (served.is_file() if config else served.is_dir()):
        raise Misuse(f"{served} is not a {'file' if config else 'directory'}", hint="check the path")
    command, *before = _own_command()
    what = ["--config", str(served)] if config else [str(served), *(["--write"] if write else [])]
    return StartedServer(command, (*before, "stdio", *what))


def _own_command() -> list[str]:
    """This very program, in a form that works from any directory and without our environment."""
    beside = Path(sys.executable).with_name("armarium")
    return [str(beside)] if os.access(beside, os.X_OK) else [sys.executable, "-P", "-m", "armarium.surfaces.cli.main"]


def plan(client_name: str, server: StartedServer | RunningServer, *, name: str, scope: Scope | None) -> Plan:
    """Work out the whole file that would be written; nothing is changed yet."""
    client = CLIENTS[client_name]
    chosen = scope or client.default_scope
    file = _file_of(client, chosen)
    # A link to a file kept elsewhere stays a link.
    file = Path(os.path.realpath(file))
    before = _content_of(file)
    document = _parsed(before, file)
    entry, secret, notes = _entry_for(client, server, chosen)
    _merge(document, client, name, entry, file)
    if secret is None and isinstance(server, RunningServer) and server.token and client.token_input:
        _merge_input(document, client.token_input, file)
    after = before if before is not None and _parsed(before, file) == document else _serialised(document)
    return Plan(client, name, chosen, file, document[client.section][name], before, after, secret, notes)


def _file_of(client: Client, scope: Scope) -> Path:
    if scope == "user":
        return client.user_file()
    if client.project_file is None:
        raise Misuse(f"{client.title} has no configuration for a project", hint="leave out --scope")
    return Path.cwd() / client.project_file


def _entry_for(
    client: Client, server: StartedServer | RunningServer, scope: Scope
) -> tuple[Entry, str | None, tuple[str, ...]]:
    """The entry, the token if it is in there, and what the user must know."""
    if isinstance(server, StartedServer):
        return client.stdio_entry(server), None, ()
    if server.token is None or scope == "user":
        return client.http_entry(server, server.token), server.token, ()
    # A project's file gets committed and shared; a token in there is a token given away.
    token_file = shlex.quote(str(server.token_file))
    note = (
        f"{client.title} will ask for the token; it is in {server.token_file}"
        if client.token_input
        else f'start {client.title} with the token: export ARMARIUM_TOKEN="$(cat {token_file})"'
    )
    return client.http_entry(server, client.token_variable), None, (note,)


def _content_of(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableConfiguration(f"cannot read {file}: {error.strerror}") from error


def _parsed(content: bytes | None, file: Path) -> dict[str, Any]:
    text = (content or b"").decode("utf-8-sig", "surrogateescape")
    if not text.strip():
        return {}
    try:
        document = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except ValueError as error:
        raise UnusableConfiguration(
            f"{file} is not plain JSON: {error}",
            hint="it was not touched; take out comments and trailing commas, then try again",
        ) from error
    if not isinstance(document, dict):
        raise UnusableConfiguration(f"{file} does not hold a JSON object", hint="it was not touched")
    return cast(dict[str, Any], document)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Python would keep the last of two equal names; writing that back would lose the first."""
    merged = dict(pairs)
    if len(merged) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return merged


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def _merge(document: dict[str, Any], client: Client, name: str, entry: Entry, file: Path) -> None:
    servers = document.setdefault(client.section, {})
    existing = servers.get(name, {}) if isinstance(servers, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] any JSON
    if not isinstance(existing, dict):
        raise UnusableConfiguration(f"`{client.section}` in {file} is not what it should be", hint="it was not touched")
    own = {key: value for key, value in cast(Entry, existing).items() if key not in TRANSPORT_KEYS}
    servers[name] = entry | own


def _merge_input(document: dict[str, Any], definition: Entry, file: Path) -> None:
    inputs = document.setdefault("inputs", [])
    if not isinstance(inputs, list):
        raise UnusableConfiguration(f"`inputs` in {file} is not a list", hint="it was not touched")
    known = cast(list[Any], inputs)
    if not any(isinstance(each, dict) and cast(Entry, each).get("id") == definition["id"] for each in known):
        known.append(definition)


def _serialised(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, indent=2, ensure_ascii=False)
    # JavaScript writes half a character where it cut a text short; UTF-8 cannot, but JSON's escapes can.
    return (text.translate(_SURROGATES) + "\n").encode()


def carry_out(plan: Plan, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Show the plan, ask, write."""
    described: dict[str, Any] = {
        "client": plan.client.title,
        "scope": plan.scope,
        "file": str(plan.file),
        "name": plan.name,
        "entry": json.loads(plan.without_secret(json.dumps(plan.entry))),
        "changed": plan.changes,
        "written": False,
        "backup": None,
        "notes": list(plan.notes),
    }
    fragment = plan.without_secret(json.dumps({plan.client.section: {plan.name: plan.entry}}, indent=2))
    say(f"{plan.client.title}, in {plan.file}:\n")
    if as_json or not dry_run:
        say(fragment)
    else:
        show(fragment)
    say()
    if not plan.changes:
        say("it is there already; nothing to do")
    elif dry_run:
        say("nothing was written (--dry-run)")
    else:
        _confirm(yes)
        described |= {"written": True, "backup": _write(plan)}
        say(f"written; {plan.client.afterwards}")
    for note in plan.notes:
        say(note)
    if as_json:
        show_json(described)


def _confirm(yes: bool) -> None:
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Misuse("nobody is there to be asked, so nothing was written", hint="say --yes, or look with --dry-run")
    try:
        typer.confirm("Write it?", default=True, abort=True, err=True)
    except typer.Abort:
        say("stopped; nothing was changed")
        raise


def _write(plan: Plan) -> str | None:
    """Replace the file in one step; the answer is where the old one is kept, if there was one."""
    try:
        plan.file.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(plan.file.stat().st_mode) if plan.before is not None else 0o666 & ~_umask()
        if plan.before is not None:
            _replace(plan.backup, plan.before, mode)
        _replace(plan.file, plan.after, mode & 0o600 if plan.secret else mode)
    except OSError as error:
        raise UnusableConfiguration(f"cannot write {plan.file}: {error.strerror}") from error
    return str(plan.backup) if plan.before is not None else None


def _replace(file: Path, content: bytes, mode: int) -> None:
    descriptor, fresh = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as target:
            os.fchmod(target.fileno(), mode)
            target.write(content)
            target.flush()
            os.fsync(target.fileno())
        os.replace(fresh, file)
    except BaseException:
        os.unlink(fresh)
        raise


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
