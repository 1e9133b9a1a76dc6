"""Changes single values in the text of a YAML file; comments, order and everything else stay as they are."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, cast

import yaml

from armarium.foundation.errors import ConfigError
from armarium.foundation.settings_loader import parse_yaml

_INDENT = "  "


def set_values(text: str, changes: Mapping[str, Any]) -> str:
    """The text with each `section.name` set to its value."""
    for name, value in changes.items():
        text = _with(text, name.split("."), value)
    return text


def _with(text: str, steps: list[str], value: Any) -> str:
    wanted = _put(_parsed(text), steps, value)
    edited = _edited(text, steps, wanted)
    # A form this editing does not know, such as an anchor: write the whole file anew instead.
    if edited is None or _parsed_or_none(edited) != wanted:
        return yaml.safe_dump(wanted, sort_keys=False, allow_unicode=True, width=120)
    return edited


def _edited(text: str, steps: list[str], wanted: dict[str, Any]) -> str | None:
    value = _at(wanted, steps)
    compose = cast(Callable[..., yaml.Node | None], yaml.compose)  # pyright: ignore[reportUnknownMemberType] untyped
    node = compose(text, Loader=yaml.SafeLoader)
    if node is None:
        return _appended(text, steps, value)
    for depth, step in enumerate(steps):
        found = _entry(node, step)
        if found is not None:
            node = found
        elif not isinstance(node, yaml.MappingNode) or node.flow_style:
            # A section on one line, or one that is empty, perhaps because everything in it is a comment.
            return _replaced(text, node, _at(wanted, steps[:depth]))
        else:
            return _inserted(text, node, steps[depth:], value) if depth else _appended(text, steps, value)
    return _replaced(text, node, value)


def _entry(node: yaml.Node, name: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    entries = cast(list[tuple[yaml.Node, yaml.Node]], node.value)
    return next((inner for key, inner in entries if key.value == name), None)


def _replaced(text: str, node: yaml.Node, value: Any) -> str | None:
    """The value in the place of a node that is on one line."""
    if not isinstance(node, yaml.ScalarNode) and not getattr(node, "flow_style", False):
        return None
    start, end = node.start_mark.index, node.end_mark.index
    space = " " if start == end else ""
    return f"{text[:start]}{space}{_on_one_line(value)}{text[end:]}"


def _at(values: dict[str, Any], steps: list[str]) -> Any:
    found: Any = values
    for step in steps:
        found = found[step]
    return found


def _inserted(text: str, parent: yaml.MappingNode, steps: list[str], value: Any) -> str | None:
    """A new entry before the first one of a section, at its depth."""
    first = parent.value[0][0].start_mark
    indent = " " * first.column
    if text[first.index - first.column : first.index] != indent:
        return None
    at = first.index - first.column
    return text[:at] + "".join(f"{indent}{line}\n" for line in _lines(steps, value)) + text[at:]


def _appended(text: str, steps: list[str], value: Any) -> str:
    body = text if not text or text.endswith("\n") else text + "\n"
    gap = "\n" if body.strip() and len(steps) > 1 else ""
    return body + gap + "".join(f"{line}\n" for line in _lines(steps, value))


def _lines(steps: list[str], value: Any) -> list[str]:
    *parents, last = steps
    return [
        *(f"{_INDENT * depth}{step}:" for depth, step in enumerate(parents)),
        f"{_INDENT * len(parents)}{last}: {_on_one_line(value)}",
    ]


def _on_one_line(value: Any) -> str:
    written = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return written.removesuffix("\n").removesuffix("\n...")


def _put(values: dict[str, Any], steps: list[str], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(values)
    section = changed
    for step in steps[:-1]:
        inner = section.get(step)
        if not isinstance(inner, dict):
            inner = section[step] = dict[str, Any]()
        section = cast(dict[str, Any], inner)
    section[steps[-1]] = value
    return changed


def _parsed(text: str) -> dict[str, Any]:
    try:
        content: object = parse_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"the file of settings is not valid YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError("the file of settings must hold a mapping")
    return cast(dict[str, Any], content)


def _parsed_or_none(text: str) -> dict[str, Any] | None:
    try:
        return _parsed(text)
    except ConfigError:
        return None
