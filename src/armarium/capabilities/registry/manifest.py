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
    "The registry records the findings of scanners in the files of a project, and the issues linked to those files. "
    "list_files shows which files have findings. get_file and get_file_timeline return the details and the history of "
    "one file. report_findings records the findings of a scan. register_file returns the id of a file, and registers "
    "it if necessary. create_issue creates an issue, promote_finding creates one from a finding, add_file_association "
    "links an issue to a file. Paths are relative to the project. Branch on the error's code."
)


def settings_model() -> type[RegistrySettings]:
    from armarium.capabilities.registry.settings import RegistrySettings

    return RegistrySettings


@asynccontextmanager
async def open_capability(section: RegistrySettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """Open the registry for the duration of the block, and follow the events of other capabilities."""
    from armarium.capabilities.registry.event_listener import listen_to_events
    from armarium.capabilities.registry.lifespan import open_registry
    from armarium.capabilities.registry.settings import project_directory
    from armarium.capabilities.registry.tools import IMPORT_TOOL, TOOLS, registry_routes
    from armarium.capability import Capability
    from armarium.foundation.tools import bind_tools

    project = project_directory(section.project)
    async with (
        open_registry(project, section.prefix) as registry,
        listen_to_events(registry, facilities.events, project),
    ):
        tools = bind_tools(TOOLS, registry)
        yield Capability("registry", tools, _INSTRUCTIONS, registry_routes([*tools, IMPORT_TOOL.bind(registry)]))


def check(section: RegistrySettings | None, facilities: Facilities) -> Iterable[CheckResult]:
    from armarium.capabilities.registry import checks

    return checks.check(section, facilities)


def state_paths(section: RegistrySettings) -> list[Path]:
    from armarium.capabilities.registry.settings import STATE_DIRECTORY, project_directory

    return [project_directory(section.project) / STATE_DIRECTORY]


def declared_tools() -> Sequence[ToolSpec]:
    from armarium.capabilities.registry.tools import TOOLS

    return [tool.spec for tool in TOOLS]


def add_commands(groups: CommandGroups) -> None:
    from armarium.capabilities.registry.commands.app import app

    groups.armarium.add_typer(app, name="registry")


def directory_section(directory: ServedDirectory) -> dict[str, Any] | None:
    """The directory as the project. A read-only directory is a project only if it already has a registry."""
    from armarium.capabilities.registry.settings import registry_file

    file = registry_file(directory.path)
    if not directory.is_writable and not file.exists():
        return None
    from armarium.capabilities.registry.checks import file_problem

    if (problem := file_problem(file)) is not None:
        raise ConfigError(problem.message, hint=f"{problem.hint}; or start with --no-registry")
    return {"project": str(directory.path)}


MANIFEST = Manifest(
    "registry",
    settings_model,
    open_capability,
    check=check,
    state_paths=state_paths,
    declared_tools=declared_tools,
    add_commands=add_commands,
    directory_section=directory_section,
)
