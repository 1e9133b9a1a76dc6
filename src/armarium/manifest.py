"""The manifest of a capability: everything the server needs to know about it, declared once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from armarium.foundation.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from armarium.capability import Capability, CheckResult, Facilities
    from armarium.command_line.host import CommandGroups, CommandHost
    from armarium.foundation.events import Events
    from armarium.foundation.routes import Route
    from armarium.foundation.security.access import AccessRule
    from armarium.foundation.security.trust import Confirmable
    from armarium.foundation.settings.model import Section
    from armarium.foundation.tools import ErrorStyle, ToolSpec


@dataclass(frozen=True, slots=True)
class ServedDirectory:
    """The directory of `armarium up DIR` or `armarium stdio DIR`."""

    path: Path
    name: str
    """The name of the directory for agents."""
    agents_may_write: bool
    state_dir: Path
    """The server's state directory, for state that cannot be kept in a read-only directory."""

    @property
    def is_writable(self) -> bool:
        return os.access(self.path, os.W_OK)


@dataclass(frozen=True, slots=True)
class DirectoryFlag:
    """The flag `--word/--no-word` that determines whether a capability serves a directory."""

    word: str
    help: str


class ProgressDisplay(Protocol):
    """Progress of background work at a terminal, or as lines in a log."""

    def begin(self) -> None:
        """Display what was received so far, and what follows."""
        ...

    def end(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Manifest:
    """Declares everything that a capability has. The assembly needs nothing else to serve it.

    A module with a manifest imports nothing at its top that takes time to load: commands read all manifests, and most
    commands need neither a server nor its settings. Its functions import what they need. Settings, checks,
    tools and routes are not declared: every capability has them in its modules `settings`, `checks`, `tools` and
    `route_tools`.
    """

    name: str
    open: Callable[[Any, Facilities], AbstractAsyncContextManager[Capability]]
    """Opens the capability with its section, and closes it at the end of the block."""
    packages: Sequence[str] = ()
    """Modules of the extra with the capability's name, all required to open it."""
    state_paths: Callable[[Any], Sequence[Path]] = lambda section: ()
    """Files and directories where the capability keeps its own state. No capability may show them to a caller."""
    is_enabled: Callable[[Any], bool] = lambda section: True
    """Whether neither its section nor the environment disables it."""
    directory_flag: DirectoryFlag | None = None
    """Its flag of `armarium up DIR` and `armarium stdio DIR`."""
    add_commands: Callable[[CommandGroups], None] = lambda groups: None
    """Adds its commands to `armarium`."""
    access_rules: Callable[[Any], Iterable[tuple[str, AccessRule]]] = lambda section: section.rules()
    """The rules of its section and of its other files that name groups, with what each is about: "" is the capability.
    """
    readable_directories: Callable[[Any], Iterable[tuple[str, Path, AccessRule]]] = lambda section: ()
    """The directories whose files its callers may read: what each is, where, and who may."""
    programs: Mapping[str, Callable[[CommandHost], NoReturn]] = field(default_factory=dict[str, Any])
    """Its programs with a name of their own, such as `mcp-filesystem`."""
    directory_section: Callable[[ServedDirectory], Mapping[str, Any] | None] = lambda directory: None
    """Its section for `armarium up DIR`. None: it does not serve this directory. Raises `ConfigError` if it cannot."""
    confirmable_files: Callable[[Path, Any], Iterable[Confirmable]] = lambda directory, section: ()
    """Settings and state in a directory that apply only after its user has confirmed them: those that its section uses,
    or all if the section is None."""
    destinations: Callable[[Any], Iterable[tuple[str, str]]] = lambda section: ()
    """The addresses to which its section sends text, each with the purpose. Local addresses count."""
    progress_display: Callable[[Events], ProgressDisplay] | None = None
    """Displays the progress of its background work on standard error, for `armarium up`."""
    error_style: Callable[[], ErrorStyle] | None = None
    """The format of errors of `armarium NAME ... --json`, if it is not the default."""

    def settings(self) -> type[Section]:
        """The model of its section of the settings file. The capability is served if that section is present."""
        return getattr(self._module("settings"), f"{self.name.capitalize()}Settings")

    def check(self, section: Any, facilities: Facilities) -> Iterable[CheckResult]:
        """The checks of `armarium doctor` for this capability. The section may be None. Nothing is changed."""
        return self._module("checks").check(section, facilities)

    def declared_tools(self) -> Sequence[ToolSpec]:
        """The tools as they are declared, without a service behind them, for the reference pages."""
        return [tool.spec for tool in self._module("tools").TOOLS]

    def declared_routes(self) -> Sequence[Route]:
        """The routes as they are declared, whatever is switched on, for the description of the JSON API."""
        from armarium.foundation.routes import bind_routes

        declared = self._module("route_tools")
        return bind_routes(declared.ROUTES, [*self.declared_tools(), *(tool.spec for tool in declared.ROUTE_TOOLS)])

    def _module(self, part: str) -> Any:
        return import_module(f"armarium.capabilities.{self.name}.{part}")

    @property
    def is_installed(self) -> bool:
        return all(find_spec(package) is not None for package in self.packages)

    def require_packages(self) -> None:
        if not self.is_installed:
            hint = f"pip install 'armarium[{self.name}]'"
            raise ConfigError(f"the {self.name} needs packages that are not installed", hint=hint)
