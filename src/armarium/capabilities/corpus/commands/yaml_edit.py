"""Sets single values in a YAML text, and preserves comments, order and formatting.

docs/decisions/0054-editing-yaml.md explains why no library does this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

import yaml

from armarium.capabilities.corpus.commands.provider_keys import value_at
from armarium.foundation.errors import ConfigError
from armarium.foundation.settings.loader import parse_yaml

_INDENT = "  "


def set_values(text: str, changes: Mapping[str, Any]) -> str:
    """The text with each `section.name` set to its value. Raises `ConfigError` if it is not a YAML mapping."""
    for name, value in changes.items():
        text = _set_value(text, name.split("."), value)
    return text


def _set_value(text: str, steps: list[str], value: Any) -> str:
    expected = _parse(text)
    _put(expected, steps, value)
    edited = _edit(text, steps, expected)
    with suppress(ConfigError):
        if edited is not None and _parse(edited) == expected:
            return edited
    # The text has a form that the editor does not support, such as an anchor: rewrite the whole file.
    return yaml.safe_dump(expected, sort_keys=False, allow_unicode=True, width=120)


def _edit(text: str, steps: list[str], expected: dict[str, Any]) -> str | None:
    value = value_at(expected, steps)
    compose = cast(Callable[..., yaml.Node | None], yaml.compose)  # pyright: ignore[reportUnknownMemberType] untyped
    node = compose(text, Loader=yaml.SafeLoader)
    if node is None:
        return _append(text, steps, value)
    for depth, step in enumerate(steps):
        found = _find_entry(node, step)
        if found is not None:
            node = found
        elif not isinstance(node, yaml.MappingNode) or node.flow_style:
            # A section in flow style, or an empty one, which may contain only comments.
            return _replace(text, node, value_at(expected, steps[:depth]))
        else:
            return _insert(text, node, steps[depth:], value) if depth else _append(text, steps, value)
    return _replace(text, node, value)


def _find_entry(node: yaml.Node, name: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    entries = cast(list[tuple[yaml.Node, yaml.Node]], node.value)
    return next((inner for key, inner in entries if key.value == name), None)


def _replace(text: str, node: yaml.Node, value: Any) -> str | None:
    """Replace a scalar or a node in flow style by the value."""
    if not isinstance(node, yaml.ScalarNode) and not getattr(node, "flow_style", False):
        return None
    start, end = node.start_mark.index, node.end_mark.index
    space = " " if start == end else ""
    return f"{text[:start]}{space}{_flow_style(value)}{text[end:]}"


def _insert(text: str, parent: yaml.MappingNode, steps: list[str], value: Any) -> str | None:
    """Insert an entry before the first one of a section, with its indentation."""
    first = parent.value[0][0].start_mark
    indent = " " * first.column
    if text[first.index - first.column : first.index] != indent:
        return None
    at = first.index - first.column
    return text[:at] + "".join(f"{indent}{line}\n" for line in _block_lines(steps, value)) + text[at:]


def _append(text: str, steps: list[str], value: Any) -> str:
    body = text if not text or text.endswith("\n") else text + "\n"
    gap = "\n" if body.strip() and len(steps) > 1 else ""
    return body + gap + "".join(f"{line}\n" for line in _block_lines(steps, value))


def _block_lines(steps: list[str], value: Any) -> list[str]:
    *parents, last = steps
    return [
        *(f"{_INDENT * depth}{step}:" for depth, step in enumerate(parents)),
        f"{_INDENT * len(parents)}{last}: {_flow_style(value)}",
    ]


def _flow_style(value: Any) -> str:
    dumped = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return dumped.removesuffix("\n").removesuffix("\n...")


def _put(section: dict[str, Any], steps: list[str], value: Any) -> None:
    for step in steps[:-1]:
        inner = section.get(step)
        if not isinstance(inner, dict):
            inner = section[step] = dict[str, Any]()
        section = cast(dict[str, Any], inner)
    section[steps[-1]] = value


def _parse(text: str) -> dict[str, Any]:
    try:
        content: object = parse_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"the settings file is not valid YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError("the settings file must contain a mapping")
    return cast(dict[str, Any], content)
