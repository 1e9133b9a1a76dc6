"""Settings under the names of other documents: moves them to our sections, and remembers what was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from armarium.foundation.errors import ConfigError
from armarium.foundation.settings.model import Section

Steps = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KnownNames:
    """Names that sections of a model have in other documents."""

    sections: Mapping[Steps, Steps]
    """Our name of a section by its other name."""
    written: dict[Steps, str] = field(default_factory=dict[Steps, str])
    """The name in the file of each setting that was moved, by its name here."""

    @classmethod
    def of(cls, sections: Mapping[str, type[Section]]) -> KnownNames:
        """The names that these sections declare, each with its own name."""
        found = {
            _steps(other): (name, *_steps(inner))
            for name, section in sections.items()
            for other, inner in section.known_as.items()
        }
        return cls(found)

    def move(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a file, with those under other names where we have them."""
        roots = {other[0] for other in self.sections}
        moved = {name: value for name, value in values.items() if str(name).partition(".")[0] not in roots}
        for name, value in values.items():
            if name not in moved:
                self._move_below(moved, _steps(str(name)), value)
        return moved

    def name_of(self, place: Sequence[object]) -> str:
        """The name of a setting of ours as it was written, for errors."""
        steps = tuple(map(str, place))
        for length in range(len(steps), 0, -1):
            if (name := self.written.get(steps[:length])) is not None:
                return ".".join([name, *steps[length:]])
        # An error about a section as a whole.
        for ours, name in self.written.items():
            other = _steps(name)[: len(steps) - len(ours)]
            if ours[: len(steps)] == steps and any(other[: len(each)] == each for each in self.sections):
                return ".".join(other)
        return ".".join(steps)

    def _move_below(self, moved: dict[str, Any], other: Steps, value: Any) -> None:
        ours = self.sections.get(other)
        inner = [each for each in self.sections if each[: len(other)] == other and len(each) > len(other)]
        if ours is None and not inner and not any(other[: len(each)] == each for each in self.sections):
            known = ", ".join(sorted(".".join(each) for each in self.sections if each[0] == other[0]))
            raise ConfigError(f"unknown setting `{'.'.join(other)}`", hint=f"known here: {known}")
        if inner and (items := _items(value)) is not None:
            for name, each in items:
                self._move_below(moved, (*other, *_steps(name)), each)
        elif value is not None:
            self._put(moved, self._ours(other), other, value)

    def _ours(self, other: Steps) -> Steps:
        length = max((len(each) for each in self.sections if other[: len(each)] == each), default=0)
        if not length:
            raise ConfigError(f"`{'.'.join(other)}` is a section")
        return (*self.sections[other[:length]], *other[length:])

    def _put(self, moved: dict[str, Any], ours: Steps, other: Steps, value: Any) -> None:
        *parents, last = ours
        both_set = ConfigError(f"`{'.'.join(ours)}` and `{'.'.join(other)}` are both set", hint="remove one of them")
        section = moved
        for step in parents:
            inner: Any = section.get(step)
            if inner is None:
                inner = section[step] = {}
            if not isinstance(inner, dict):
                raise both_set
            section = cast(dict[str, Any], inner)
        if (items := _items(value)) is not None:
            section[last] = section.get(last) or {}
            for name, each in items:
                self._put(moved, (*ours, name), (*other, name), each)
        elif section.get(last) is not None:
            raise both_set
        else:
            section[last] = value
            self.written[ours] = ".".join(other)


def _steps(name: str) -> Steps:
    return tuple(name.split(".")) if name else ()


def _items(value: object) -> list[tuple[str, Any]] | None:
    """The members of a section; None if the value is not one."""
    if not isinstance(value, Mapping):
        return None
    return [(str(name), each) for name, each in cast(Mapping[object, Any], value).items()]
