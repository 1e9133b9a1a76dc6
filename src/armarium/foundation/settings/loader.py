"""Loads settings from a YAML file, environment variables and flags; unknown names are errors."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from armarium.foundation.errors import ConfigError
from armarium.foundation.settings.file_secrets import FileSecret, read_references
from armarium.foundation.settings.known_names import KnownNames
from armarium.foundation.settings.model import Section

_NESTING = "__"
_NOT_SETTINGS = frozenset({"ARMARIUM_TOKEN", "ARMARIUM_TRACEBACK"})
"""Variables with our prefix that commands and clients read themselves."""
_CLUSTER_NAME = re.compile(r".*_(SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP|SCTP))(_.*)?")

SettingsT = TypeVar("SettingsT", bound=Section)


def load_settings(
    model: type[SettingsT],
    file: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> SettingsT:
    """Build `model` from defaults, file, `ARMARIUM_SECTION__NAME` variables and dotted flags, in this order.
    A secret setting may be `${file:PATH}`."""
    source = str(file) if file else "the settings"
    sections = {name: section for name in model.model_fields if (section := _section_named(model, name)) is not None}
    names = KnownNames.of(sections)
    try:
        values = names.move(read_yaml(file)) if file else {}
    except ConfigError as error:
        raise ConfigError(f"{source}: {error.message}", hint=error.hint) from error
    values = overridden(model, values, environ or {}, flags or {})
    read_references(values)
    settings = checked(model, values, source=source, name_of=names.name_of)
    return settings.read_from(file).with_renamed({other: ".".join(ours) for ours, other in names.written.items()})


def overridden(
    model: type[Section],
    values: dict[str, Any],
    environ: Mapping[str, str],
    flags: Mapping[str, Any],
    *,
    prefix: str = "ARMARIUM_",
    not_settings: Collection[str] = _NOT_SETTINGS,
) -> dict[str, Any]:
    """The values of a file, overridden by `PREFIX_SECTION__NAME` variables and dotted flags, not yet validated."""
    for variable, text in _own_variables(environ, prefix, not_settings):
        steps = variable.removeprefix(prefix).lower().split(_NESTING)
        if len(steps) == 1 and steps[0] not in model.model_fields:
            raise ConfigError(f"{variable} is not a setting", hint=_hint_for_variable(model, variable, prefix))
        if (section := _section_named(model, steps[0])) is not None and section.from_file_only:
            raise ConfigError(
                f"{variable}: the section `{steps[0]}` cannot be set from the environment",
                hint="set it in the settings file",
            )
        try:
            _put(values, steps, parse_yaml(text), source=variable)
        except yaml.YAMLError as error:
            raise ConfigError(f"{variable} does not hold a valid value") from error
    for flag, value in flags.items():
        if value is not None:
            _put(values, flag.split("."), value, source=flag)
    return values


class _Yaml(yaml.SafeLoader):
    """YAML in which only `true` and `false` are booleans: `off` and `no` are strings."""


_Yaml.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in known if tag != "tag:yaml.org,2002:bool"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Yaml.add_implicit_resolver(  # pyright: ignore[reportUnknownMemberType] PyYAML has no types for it
    "tag:yaml.org,2002:bool", re.compile(r"(true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")
)


def parse_yaml(text: str) -> Any:
    """Parse the text of a settings file."""
    return yaml.load(text, _Yaml)  # noqa: S506 the loader is a safe one


def read_yaml(file: Path) -> dict[str, Any]:
    """The mapping in a YAML file; an empty file is an empty mapping."""
    try:
        content = parse_yaml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", hint="check the path after --config") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{file} must hold a mapping of settings, not {type(content).__name__}")
    return content  # pyright: ignore[reportUnknownVariableType] any YAML


def _dotted(place: Sequence[object]) -> str:
    return ".".join(map(str, place))


def checked(
    model: type[SettingsT],
    values: Mapping[str, Any],
    *,
    source: str,
    name_of: Callable[[Sequence[object]], str] = _dotted,
) -> SettingsT:
    """Validate `values` as `model`. The error names the first invalid setting, as `name_of` tells it."""
    try:
        return model.model_validate(_with_empty_sections(model, values))
    except ValidationError as error:
        first = error.errors()[0]
        message = _in_words(first, name_of(first["loc"]))
        raise ConfigError(f"{source}: {message}", hint=_hint(model, first)) from error


def _with_empty_sections(model: type[Section], values: Mapping[str, Any]) -> dict[str, Any]:
    """Give an empty section, for instance one whose settings are all commented out, its defaults. An optional section,
    such as that of a capability, stays empty: the capability is disabled."""
    filled = dict(values)
    for name, value in values.items():
        section = _section_named(model, name)
        if section is None or not (isinstance(value, Mapping) or value is None):
            continue
        if value is not None or model.model_fields[name].annotation is section:
            filled[name] = _with_empty_sections(section, value or {})  # pyright: ignore[reportUnknownArgumentType] any YAML
    return filled


def _in_words(error: ErrorDetails, where: str) -> str:
    if error["type"] == "extra_forbidden":
        return f"unknown setting `{where}`"
    if isinstance(error["input"], FileSecret) and error["type"] != "value_error":
        return f"`{where}` is not a secret, so it cannot be read from a file"
    if error["type"] == "missing":
        return f"`{where}` is required"
    message = error["msg"].removeprefix("Value error, ")
    return f"`{where}`: {message}" if where else message


def _hint(model: type[Section], error: ErrorDetails) -> str | None:
    if error["type"] != "extra_forbidden":
        return None
    *parents, unknown = error["loc"]
    known = _setting_names(model, parents)
    near = difflib.get_close_matches(str(unknown), known, n=1)
    return f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(known)}"


def _setting_names(model: type[Section], path: list[int | str]) -> list[str]:
    for step in path:
        if isinstance(step, str):
            model = _section_within(model.model_fields[step].annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _section_named(model: type[Section], name: str) -> type[Section] | None:
    """The section in a field of this name. A list of sections is none: its items have no names."""
    field = model.model_fields.get(name)
    if field is None or get_origin(field.annotation) is tuple:
        return None
    return _section_within(field.annotation)


def _section_within(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section_within(part))), None)


def _own_variables(environ: Mapping[str, str], prefix: str, not_settings: Collection[str]) -> Iterator[tuple[str, str]]:
    in_cluster = "KUBERNETES_SERVICE_HOST" in environ
    for variable, text in environ.items():
        if not variable.startswith(prefix) or variable in not_settings:
            continue
        # Kubernetes sets variables like ours in every process if a service is called `armarium`.
        if in_cluster and (_CLUSTER_NAME.fullmatch(variable) or text.startswith(("tcp://", "udp://", "sctp://"))):
            continue
        yield variable, text


def _hint_for_variable(model: type[Section], unknown: str, prefix: str) -> str:
    known = list(_variable_names(model))
    wanted = unknown.removeprefix(prefix)
    # Usually the section is missing.
    near = [name for name in known if name.endswith(_NESTING + wanted)] or difflib.get_close_matches(wanted, known, n=1)
    return f"did you mean {prefix}{near[0]}?" if near else f"the form is {prefix}SECTION__NAME"


def _variable_names(model: type[Section], section: str = "") -> Iterator[str]:
    for name in model.model_fields:
        variable, inner = section + name.upper(), _section_named(model, name)
        if inner is None:
            yield variable
        elif not inner.from_file_only:
            yield from _variable_names(inner, variable + _NESTING)


def _put(values: dict[str, Any], steps: list[str], value: Any, *, source: str) -> None:
    *parents, last = steps
    for step in parents:
        inner = values.setdefault(step, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{source}: `{step}` is not a section")
        values = inner  # pyright: ignore[reportUnknownVariableType] any YAML
    values[last] = value
