"""The manifest of the registry."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from armarium.foundation.errors import ConfigError
from armarium.manifest import Manifest, ServedDirectory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence
    from pathlib import Path

    from armarium.capabilities.registry.settings import RegistrySettings
    from armarium.capability import Capability, CheckResult, Facilities
    from armarium.command_line.host import CommandGroups
    from armarium.foundation.tools import ToolSpec

_INSTRUCTIONS = (
    "The registry knows what was found in the files of a project, and which issues are about them. list_files shows "
    "where findings are, get_file and get_file_timeline tell about one file, report_findings puts in what was found. "
    "register_file gives a file an id, create_issue and promote_finding note work to be done, add_file_association "
    "links the two. Paths are relative to the project. Branch on the error's code."
)


def settings_model() -> type[RegistrySettings]:
    """The model of its section."""
    from armarium.capabilities.registry.settings import RegistrySettings

    return RegistrySettings


@asynccontextmanager
async def open_capability(settings: RegistrySettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """The capability, for as long as the block runs."""
    from armarium.capabilities.registry.event_listener import listen_to_events
    from armarium.capabilities.registry.lifespan import open_registry
    from armarium.capabilities.registry.settings import project_directory
    from armarium.capabilities.registry.tools import IMPORT_TOOL, TOOLS, registry_routes
    from armarium.capability import Capability
    from armarium.foundation.tools import bind_tools

    project = project_directory(settings.project)
    async with (
        open_registry(project, settings.prefix) as registry,
        listen_to_events(registry, facilities.events, project),
    ):
        tools = bind_tools(TOOLS, registry)
        yield Capability("registry", tools, _INSTRUCTIONS, registry_routes([*tools, IMPORT_TOOL.bind(registry)]))


def check_registry(section: RegistrySettings | None, facilities: Facilities) -> Iterable[CheckResult]:
    """What `armarium doctor` is told."""
    from armarium.capabilities.registry.checks import check

    return check(section, facilities)


def described_tools() -> Sequence[ToolSpec]:
    """The tools without a registry behind them: no project is touched to write a manual."""
    from armarium.capabilities.registry.tools import TOOLS

    return [tool.spec for tool in TOOLS]


def registry_state_paths(section: RegistrySettings) -> list[Path]:
    """The directory with the registry's file, inside the project."""
    from armarium.capabilities.registry.settings import STATE_DIRECTORY, project_directory

    return [project_directory(section.project) / STATE_DIRECTORY]


def add_commands(groups: CommandGroups) -> None:
    """`armarium registry`."""
    from armarium.capabilities.registry.commands.app import app

    groups.armarium.add_typer(app, name="registry")


def directory_section(directory: ServedDirectory) -> dict[str, Any] | None:
    """The directory as project. A directory that cannot be written is served if it has a registry already."""
    from armarium.capabilities.registry.settings import registry_file

    file = registry_file(directory.path)
    if not directory.is_writable and not file.exists():
        return None
    from armarium.capabilities.registry.checks import file_problem

    if (problem := file_problem(file)) is not None:
        raise ConfigError(problem.message, hint=problem.hint)
    return {"project": str(directory.path)}


MANIFEST = Manifest(
    "registry",
    settings_model,
    open_capability,
    check=check_registry,
    state_paths=registry_state_paths,
    declared_tools=described_tools,
    add_commands=add_commands,
    directory_section=directory_section,
)
