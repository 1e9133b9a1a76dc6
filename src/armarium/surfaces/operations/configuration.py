"""`GET /api/admin/settings` and `GET /api/admin/doctor`: the settings in effect, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired

import anyio.to_thread
from pydantic import SecretBytes, SecretStr
from typing_extensions import TypedDict

from armarium.capability import CheckResult
from armarium.foundation.settings.model import CoreSettings, Section
from armarium.foundation.tools import Call, NoArgs

_MASK = "********"
_NEVER_SHOWN = frozenset({"key_sha256"})


class NamedValue(TypedDict):
    name: str
    value: Any
    """As in a settings file. Secrets are masked."""
    is_set: bool
    """Whether it was set; otherwise the value is the default."""
    description: NotRequired[str]


class EffectiveSettings(TypedDict):
    settings: list[NamedValue]


class Check(TypedDict):
    subject: str
    state: Literal["ok", "warn", "fail"]
    message: str
    hint: NotRequired[str]


class Checks(TypedDict):
    ok: bool
    checks: list[Check]


@dataclass(frozen=True, slots=True)
class ConfigurationTools:
    """What administrators learn about the set-up of a server."""

    settings: CoreSettings
    run_checks: Callable[[], Sequence[CheckResult]]

    async def show_settings(self, call: Call, args: NoArgs) -> EffectiveSettings:
        """Show the settings in effect, each with its description. Secrets are masked."""
        return {"settings": list(_flat(self.settings, ""))}

    async def doctor(self, call: Call, args: NoArgs) -> Checks:
        """Check everything that the server needs, like `armarium doctor`. Each problem comes with what to do."""
        results = await anyio.to_thread.run_sync(self.run_checks)
        return {"ok": all(each.state != "fail" for each in results), "checks": [_described(each) for each in results]}


def _described(result: CheckResult) -> Check:
    check: Check = {"subject": result.subject, "state": result.state, "message": result.message}
    if result.hint is not None:
        check["hint"] = result.hint
    return check


def _flat(section: Section, prefix: str) -> Iterator[NamedValue]:
    """The settings of a section and those below, by their dotted names."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            is_set = name in section.model_fields_set
            setting: NamedValue = {"name": prefix + name, "value": _shown(name, value), "is_set": is_set}
            if field.description:
                setting["description"] = field.description
            yield setting


def _shown(name: str, value: object) -> Any:
    """A value as JSON, without secrets at any depth."""
    match value:
        case SecretStr() | SecretBytes():
            return _MASK
        case _ if name in _NEVER_SHOWN:
            return _MASK
        case Section():
            return {each: _shown(each, getattr(value, each)) for each in type(value).model_fields}
        case dict():
            return {str(each): _shown(str(each), held) for each, held in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] any value
        case list() | tuple() | set() | frozenset():
            return [_shown(name, each) for each in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] any value
        case str() | int() | float() | bool() | None:
            return value
        case _:
            return str(value)
