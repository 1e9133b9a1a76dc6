"""Masks possible secrets in a server's entry, and restores them when the entry is sent back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

from armarium.capabilities.gateway.secret_parameters import SECRET_NAME

MASK: Final = "********"
"""Replaces a possible secret. Sent back, it keeps the current value."""

_VALUES = ("env", "headers")
_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
# `--token=x`, `api-key=x`, `API_KEY: x`, and headers whose value begins with a scheme.
_NAMED = re.compile(r"(?s)(-{0,2}[A-Za-z][\w.-]*\s*[=:]\s*)(.+)")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
# Long, of mixed characters and without separators: probably a key.
_KEY_LIKE = re.compile(r"(?=.*\d)(?=.*[A-Z])(?=.*[a-z])[\w+=~-]{20,}|[0-9a-fA-F-]{32,}")
# Well-known prefixes of keys, followed by a random part.
_MARKED_KEY = re.compile(
    r"(?<![\w-])(?:sk-|[sr]k_live_|gh[opusr]_|github_pat_|glpat-|xox[abeoprs]-|hf_|npm_|pypi-|AIza)"
    r"(?=[\w-]*\d)[\w-]{16,}|(?<![\w-])A[KS]IA[A-Z0-9]{16}(?![\w-])"
)
# The value of `-p` or `-k` may be a port, a path or a project; a mix of letters with digits or signs is none of these.
_SHORT_FLAG = re.compile(r"-[pk]")
_PASSWORD_LIKE = re.compile(r"(?=.*[A-Za-z])(?=.*[\d!#$%&*@^~])[^\s/\\:.-][^\s/\\:.]{5,}")


def mask(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry with possible secrets masked. Names of environment variables stay visible."""
    shown = dict(entry)
    for part in _VALUES:
        if part in shown:
            shown[part] = {name: _mask_value(value) for name, value in shown[part].items()}
    if "args" in shown:
        shown["args"] = _mask_arguments(shown["args"])
    if "url" in shown:
        shown["url"] = _mask_url(shown["url"])
    return shown


def unmask(given: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """The entry that was sent, with each mask replaced by the current value."""
    entry, shown = dict(given), mask(current)
    for part in _VALUES:
        if isinstance(entry.get(part), dict):
            values, before = cast("dict[str, Any]", entry[part]), current.get(part, {})
            entry[part] = {name: before.get(name, value) if value == MASK else value for name, value in values.items()}
    if isinstance(entry.get("args"), list):
        arguments = cast("list[Any]", entry["args"])
        entry["args"] = _unmask_arguments(arguments, current.get("args", ()), shown.get("args", ()))
    if "url" in current and entry.get("url") == shown["url"]:
        entry["url"] = current["url"]
    return entry


def remaining_masks(entry: Mapping[str, Any]) -> list[str]:
    """The locations of masks without a current value."""
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


def _mask_value(value: str) -> str:
    return value if _VARIABLE.fullmatch(value) else MASK


def _mask_arguments(arguments: Sequence[str]) -> list[str]:
    shown: list[str] = []
    for place, argument in enumerate(arguments):
        before = arguments[place - 1] if place else ""
        shown.append(_mask_value(argument) if _is_value_of(before, argument) else _mask_argument(argument))
    return shown


def _is_value_of(flag: str, argument: str) -> bool:
    """Whether an argument is the secret value of the flag before it."""
    if _SHORT_FLAG.fullmatch(flag):
        return bool(_PASSWORD_LIKE.fullmatch(argument))
    return bool(_FLAG.fullmatch(flag) and SECRET_NAME.search(flag) and not argument.startswith("-"))


def _mask_argument(argument: str) -> str:
    named = _NAMED.fullmatch(argument)
    if named is not None and SECRET_NAME.search(named[1]):
        return named[1] + _mask_value(named[2])
    if _ADDRESS.search(argument):
        return _ADDRESS.sub(lambda found: _mask_url(found[0]), argument)
    if named is not None:
        return named[1] + _mask_argument(named[2])
    return _mask_keys(argument)


def _mask_keys(text: str) -> str:
    return MASK if _KEY_LIKE.fullmatch(text) else _MARKED_KEY.sub(MASK, text)


def _mask_url(address: str) -> str:
    """A URL with credentials, query values, and keys in its path masked."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return MASK
    user, at, host = parts.netloc.rpartition("@")
    path = "/".join(_mask_keys(step) for step in parts.path.split("/"))
    query = "&".join(_mask_pair(*pair.partition("=")) for pair in parts.query.split("&")) if parts.query else ""
    login = f"{MASK if user else ''}{at}{host}"
    shown = urlunsplit((parts.scheme, login, path, query, MASK if parts.fragment else ""))
    # `urlunsplit` may normalize the URL.
    return shown if MASK in shown else address


def _mask_pair(name: str, equals: str, value: str) -> str:
    return f"{name}={_mask_value(value)}" if equals else MASK


def _unmask_arguments(given: Sequence[Any], current: Sequence[str], shown: Sequence[str]) -> list[Any]:
    """Replace each masked argument by the current one with the same mask, preferably after the same flag."""
    before = [*zip(["", *shown], shown, current, strict=False)]
    arguments: list[Any] = []
    for place, value in enumerate(given):
        if not _has_mask(value):
            arguments.append(value)
            continue
        flag = given[place - 1] if place else ""
        options = [each for each in before if each[1] == value]
        options = [each for each in options if each[0] == flag] or options
        if options:
            before.remove(options[0])
        arguments.append(options[0][2] if options else value)
    return arguments
