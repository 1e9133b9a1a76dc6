"""`armarium keys`: adds, lists, rotates and revokes the keys of callers. Running servers notice each change."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from armarium.command_line.options import AsJson, ConfigFile, settings_file
from armarium.command_line.output import Misuse, say, show, show_help, show_json
from armarium.surfaces.cli.trust import require_trusted_settings

if TYPE_CHECKING:
    from armarium.foundation.schema import Json
    from armarium.foundation.security.keys import KeyFile, StoredKey
    from armarium.foundation.settings.model import CoreSettings
    from armarium.foundation.tools import Call

keys_app = typer.Typer(rich_markup_mode=None)

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(\d+)([smhdw])")
_PLAIN = "{name:<24} {access:<6} {groups:<24} {capabilities:<24} {expires}"

Name = Annotated[str, Argument(metavar="NAME", help="Name of the caller in the audit log and in access rules.")]


@keys_app.callback(invoke_without_command=True)
def keys(context: typer.Context) -> None:
    """Give each caller a key of their own.

    \b
    armarium keys add laptop --capability sandbox --read-only
    armarium keys add ops --group admin --expires 90d
    armarium keys rotate laptop --grace 1h
    """
    show_help(context)


@keys_app.command()
def add(
    context: typer.Context,
    name: Name,
    group: Annotated[
        list[str] | None, Option(metavar="GROUP", help="Group of the caller; repeat it for several.")
    ] = None,
    capability: Annotated[
        list[str] | None,
        Option(metavar="CAPABILITY", help="Capability that the key may use; repeat it for several. [default: all]"),
    ] = None,
    read_only: Annotated[bool, Option("--read-only", help="Only tools that change nothing.")] = False,
    expires: Annotated[
        str | None, Option(metavar="WHEN", help="When the key ends: in 12h or 90d, or a date (ISO 8601).")
    ] = None,
    requests_per_second: Annotated[
        float | None, Option(metavar="N", help="Rate limit of this key, instead of the server's.")
    ] = None,
    calls_in_flight: Annotated[
        int | None, Option(metavar="N", help="Concurrent calls of this key, instead of the server's limit.")
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Add a key and print its secret, which is shown only once.

    The secret alone goes to standard output, so that a script can store it.
    """
    from armarium.assembly import MANIFESTS

    known = [manifest.name for manifest in MANIFESTS]
    for each in capability or ():
        if each not in known:
            raise Misuse(f"--capability: there is no {each}", hint=f"one of {', '.join(known)}")
    if not all(group or ()):
        raise Misuse("--group: a name must not be empty")
    traits: dict[str, Any] = {
        "groups": tuple(group or ()),
        "capabilities": tuple(capability) if capability else None,
        "access": "read" if read_only else "write",
        "expires_at": _moment(expires),
        "requests_per_second": requests_per_second,
        "calls_in_flight": calls_in_flight,
    }
    added = _change(context, config, "keys_add", lambda file: _with_secret(*file.add(name, **traits)), name, traits)
    _show_secret(added, as_json=as_json)


@keys_app.command("list")
def list_keys(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """List the keys. Their secrets are not stored and cannot be listed."""
    from armarium.foundation.security.keys import KeyFile

    stored = KeyFile(_settings(config).keys_file()).read()
    if as_json:
        show_json([_described(key) for key in stored])
        return
    if not stored:
        say("there are no keys; `armarium keys add NAME` makes one")
        return
    show(_PLAIN.format(name="NAME", access="ACCESS", groups="GROUPS", capabilities="CAPABILITIES", expires="EXPIRES"))
    for key in stored:
        described = _described(key)
        ends = "expired" if described["expired"] else described["expires_at"] or "never"
        capabilities = ",".join(key.capabilities) if key.capabilities else "all"
        groups = ",".join(key.groups) or "-"
        show(_PLAIN.format(name=key.name, access=key.access, groups=groups, capabilities=capabilities, expires=ends))


@keys_app.command()
def rotate(
    context: typer.Context,
    name: Name,
    grace: Annotated[
        str | None, Option(metavar="DURATION", help="How long the old secret stays valid: 10m, 1h, 1d. [default: not]")
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Replace the secret of a key and print the new one. The caller keeps their files and rights."""
    still_valid = _duration(grace, "--grace") if grace else timedelta(0)
    rotated = _change(
        context,
        config,
        "keys_rotate",
        lambda file: _with_secret(*file.rotate(name, grace=still_valid)),
        name,
        {"grace": grace},
    )
    _show_secret(rotated, as_json=as_json)


@keys_app.command()
def revoke(context: typer.Context, name: Name, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Remove a key. Its next request is refused and its listening streams end; calls in progress finish."""
    revoked = _change(context, config, "keys_revoke", lambda file: {"revoked": file.revoke(name).name}, name)
    if as_json:
        show_json(revoked)
    else:
        say(f"revoked {name}")


def _settings(config: Path | None) -> CoreSettings:
    from armarium.foundation.settings.loader import load_settings
    from armarium.settings import Settings

    settings = load_settings(Settings, settings_file(config), environ=os.environ)
    require_trusted_settings(config)
    return settings


def _change(
    context: typer.Context,
    config: Path | None,
    action: str,
    change: Callable[[KeyFile], Json],
    name: str,
    traits: Mapping[str, Any] | None = None,
) -> Json:
    """Change the keys through the dispatcher, which records it, also if it fails."""
    import anyio

    from armarium.foundation.security.keys import KeyFile
    from armarium.foundation.tools import ToolSpec

    settings = _settings(config)

    async def run(call: Call, arguments: Mapping[str, Any]) -> Json:
        return change(KeyFile(settings.keys_file()))

    schema = {"type": "object", "properties": {"name": {"type": "string"}, "traits": {"type": "object"}}}
    tool = ToolSpec(action, "Change the keys.", schema, run, subject=("", "name"))
    given = {"name": name, "traits": {each: str(value) for each, value in (traits or {}).items() if value}}
    return anyio.run(partial(context.obj.call, "keys", tool, given, settings=settings))


def _with_secret(key: StoredKey, secret: str) -> Json:
    return _described(key) | {"key": secret}


def _show_secret(key: Json, *, as_json: bool) -> None:
    if as_json:
        show_json(key)
        return
    say(f"the key of {key['name']}, shown only once; send it as `Authorization: Bearer …`")
    show(key["key"])
    if sys.stdout.isatty():
        say("running servers accept it now")


def _described(key: StoredKey) -> Json:
    from armarium.foundation.security.keys import utc_now

    hidden = {"key_sha256", "identity", "previous_sha256"}
    return key.model_dump(mode="json", exclude=hidden) | {"expired": key.is_expired(utc_now())}


def _moment(text: str | None) -> datetime | None:
    from armarium.foundation.security.keys import utc_now

    if text is None:
        return None
    if _DURATION.fullmatch(text):
        return utc_now() + _duration(text, "--expires")
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise Misuse(f"--expires: {text!r} is not a time", hint="write 12h, 90d, or 2027-01-31T08:00") from None
    if moment <= utc_now():
        raise Misuse("--expires: that is in the past")
    return moment


def _duration(text: str, option: str) -> timedelta:
    try:
        if match := _DURATION.fullmatch(text):
            return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        pass
    raise Misuse(f"{option}: {text!r} is not a duration", hint="write 10m, 1h or 90d")
