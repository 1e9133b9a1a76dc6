"""A server's entry as administrators are shown it: what may be secret is masked, and comes back as it was."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

MASK: Final = "********"
"""Stands for a value that may be a secret. Sent back, it leaves the value as it is."""

_VALUES = ("env", "headers")
_FILLED_IN = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_SECRET_NAME = re.compile(r"(?i)(token|key|secret|passw|pwd|credential|auth|bearer|cookie)")
# `--token=x`, `api-key=x`, `API_KEY: x`, and headers with a scheme before what counts.
_NAMED = re.compile(r"(?s)(-{0,2}[A-Za-z][\w.-]*\s*[=:]\s*)(.+)")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
# Long, of all sorts of characters and nothing that parts words: more likely a key than something to read.
_KEY_LIKE = re.compile(r"(?=.*\d)(?=.*[A-Z])(?=.*[a-z])[\w+=~-]{20,}|[0-9a-fA-F-]{32,}")
# What the makers of keys put before them, so that they are found: and behind it something that is no name.
_MARKED_KEY = re.compile(
    r"(?<![\w-])(?:sk-|[sr]k_live_|gh[opusr]_|github_pat_|glpat-|xox[abeoprs]-|hf_|npm_|pypi-|AIza)"
    r"(?=[\w-]*\d)[\w-]{16,}|(?<![\w-])A[KS]IA[A-Z0-9]{16}(?![\w-])"
)
# After `-p` or `-k`, which may as well be a port, a path or a project: letters with digits or signs are none of these.
_SHORT_FLAG = re.compile(r"-[pk]")
_PASSWORD_LIKE = re.compile(r"(?=.*[A-Za-z])(?=.*[\d!#$%&*@^~])[^\s/\\:.-][^\s/\\:.]{5,}")


def masked(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry, as a file has it, without the values that may be secret. Names of variables may be seen."""
    shown = dict(entry)
    for part in _VALUES:
        if part in shown:
            shown[part] = {name: _unless_filled_in(value) for name, value in shown[part].items()}
    if "args" in shown:
        shown["args"] = _masked_arguments(shown["args"])
    if "url" in shown:
        shown["url"] = _masked_address(shown["url"])
    return shown


def unmasked(given: Mapping[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    """What was sent, with the values of the entry as it is where its sender was not shown them."""
    meant, shown = dict(given), masked(kept)
    for part in _VALUES:
        if isinstance(meant.get(part), dict):
            values, before = cast("dict[str, Any]", meant[part]), kept.get(part, {})
            meant[part] = {name: before.get(name, value) if value == MASK else value for name, value in values.items()}
    if isinstance(meant.get("args"), list):
        arguments = cast("list[Any]", meant["args"])
        meant["args"] = _unmasked_arguments(arguments, kept.get("args", ()), shown.get("args", ()))
    if "url" in kept and meant.get("url") == shown["url"]:
        meant["url"] = kept["url"]
    return meant


def still_masked(entry: Mapping[str, Any]) -> list[str]:
    """Where a mask is left that stands for nothing: the value it was shown for is not in the entry any more."""
    places = [
        f"{part}.{name}"
        for part in _VALUES
        if isinstance(entry.get(part), dict)
        for name, value in cast("dict[str, Any]", entry[part]).items()
        if value == MASK
    ]
    if isinstance(entry.get("args"), list):
        places += [f"args[{place}]" for place, value in enumerate(cast("list[Any]", entry["args"])) if _has_mask(value)]
    return [*places, "url"] if _has_mask(entry.get("url")) else places


def _has_mask(value: object) -> bool:
    return isinstance(value, str) and MASK in value


def _unless_filled_in(value: str) -> str:
    return value if _FILLED_IN.fullmatch(value) else MASK


def _masked_arguments(arguments: Sequence[str]) -> list[str]:
    shown: list[str] = []
    for place, argument in enumerate(arguments):
        before = arguments[place - 1] if place else ""
        shown.append(_unless_filled_in(argument) if _is_value_of(before, argument) else _masked_argument(argument))
    return shown


def _is_value_of(flag: str, argument: str) -> bool:
    """Whether an argument is the secret that the one before it announces."""
    if _SHORT_FLAG.fullmatch(flag):
        return bool(_PASSWORD_LIKE.fullmatch(argument))
    return bool(_FLAG.fullmatch(flag) and _SECRET_NAME.search(flag) and not argument.startswith("-"))


def _masked_argument(argument: str) -> str:
    named = _NAMED.fullmatch(argument)
    if named is not None and _SECRET_NAME.search(named[1]):
        return named[1] + _unless_filled_in(named[2])
    if _ADDRESS.search(argument):
        return _ADDRESS.sub(lambda found: _masked_address(found[0]), argument)
    if named is not None:
        return named[1] + _masked_argument(named[2])
    return _without_keys(argument)


def _without_keys(text: str) -> str:
    return MASK if _KEY_LIKE.fullmatch(text) else _MARKED_KEY.sub(MASK, text)


def _masked_address(address: str) -> str:
    """An address without whoever logs in, the values of its query, and what looks like a key in its path."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return MASK
    user, at, host = parts.netloc.rpartition("@")
    path = "/".join(_without_keys(step) for step in parts.path.split("/"))
    query = "&".join(_masked_pair(*pair.partition("=")) for pair in parts.query.split("&")) if parts.query else ""
    login = f"{MASK if user else ''}{at}{host}"
    shown = urlunsplit((parts.scheme, login, path, query, MASK if parts.fragment else ""))
    # Put together again, an address may be written in another way.
    return shown if MASK in shown else address


def _masked_pair(name: str, equals: str, value: str) -> str:
    return f"{name}={_unless_filled_in(value)}" if equals else MASK


def _unmasked_arguments(given: Sequence[Any], kept: Sequence[str], shown: Sequence[str]) -> list[Any]:
    """Each argument that was sent masked becomes the one that was shown so: at its place, or after the same flag."""
    before = [*zip(["", *shown], shown, kept, strict=False)]
    meant: list[Any] = []
    for place, value in enumerate(given):
        if not _has_mask(value):
            meant.append(value)
            continue
        flag = given[place - 1] if place else ""
        options = [each for each in before if each[1] == value]
        options = [each for each in options if each[0] == flag] or options
        if options:
            before.remove(options[0])
        meant.append(options[0][2] if options else value)
    return meant
