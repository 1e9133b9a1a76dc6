"""The manifest of the registry."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from armarium.foundation.errors import ConfigError
from armarium.manifest import DirectoryFlag, Manifest, ServedDirectory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable
    from pathlib import Path

    from armarium.capabilities.registry.settings import RegistrySettings
    from armarium.capability import Capability, Facilities
    from armarium.command_line.host import CommandGroups
    from armarium.foundation.security.trust import Confirmable
    from armarium.foundation.tools import ErrorStyle

_INSTRUCTIONS = (
    "The registry records the findings of scanners in the files of a project, and the issues linked to those files. "
    "list_files shows which files have findings. get_file and get_file_timeline return the details and the history of "
    "one file. report_findings records the findings of a scan. register_file returns the id of a file, and registers "
    "it if necessary. create_issue creates an issue, promote_finding creates one from a finding, add_file_association "
    "links an issue to a file. Paths are relative to the project. Branch on the error's code."
)


@asynccontextmanager
async def open_capability(section: RegistrySettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """Open the registry for the duration of the block, and follow the events of other capabilities."""
    from armarium.capabilities.registry.events.listener import listen_to_events
    from armarium.capabilities.registry.events.publisher import publish_changes
    from armarium.capabilities.registry.knowledge import RegistryKnowledge
    from armarium.capabilities.registry.lifespan import open_registry
    from armarium.capabilities.registry.route_tools import REGISTRY_TOOLS, ROLES_TOOL, ROUTES
    from armarium.capabilities.registry.settings import project_directory
    from armarium.capabilities.registry.tools import TOOLS
    from armarium.capability import Capability
    from armarium.foundation.files.own_files import lines_in_every_spelling, private_places
    from armarium.foundation.routes import bind_routes
    from armarium.foundation.security.access import Access
    from armarium.foundation.tools import bind_tools

    project, access = project_directory(section.project), Access("registry", section.rule)
    own_files = private_places([*facilities.private_paths, *facilities.settings_files], str(project))
    hidden = [*facilities.credential_patterns, *lines_in_every_spelling(own_files)]
    async with (
        open_registry(project, section.prefix, hidden=hidden) as registry,
        listen_to_events(registry, facilities.events, project),
        publish_changes(registry, facilities.events),
    ):
        tools = bind_tools(TOOLS, registry, access)
        behind_routes = [*bind_tools(REGISTRY_TOOLS, registry, access), ROLES_TOOL.bind(access, access)]
        routes = bind_routes(ROUTES, [*tools, *behind_routes])
        knowledge = RegistryKnowledge(registry)
        yield Capability("registry", tools, _INSTRUCTIONS, routes, access=access, knowledge=knowledge)


def state_paths(section: RegistrySettings) -> list[Path]:
    from armarium.capabilities.registry.settings import STATE_DIRECTORY, project_directory

    return [project_directory(section.project) / STATE_DIRECTORY]


def error_style() -> ErrorStyle:
    from armarium.capabilities.registry.errors import REGISTRY_ERRORS

    return REGISTRY_ERRORS


def add_commands(groups: CommandGroups) -> None:
    from armarium.capabilities.registry.commands.app import app

    groups.armarium.add_typer(app, name="registry")


def confirmable_files(directory: Path, section: RegistrySettings | None) -> Iterable[Confirmable]:
    """The registry of a project, if this user's Armarium did not write it."""
    if section is not None:
        return ()
    from armarium.capabilities.registry.ownership import registry_to_confirm

    return registry_to_confirm(directory)


def directory_section(directory: ServedDirectory) -> dict[str, Any] | None:
    """The directory as the project. A read-only directory is a project only if it already has a registry."""
    from armarium.capabilities.registry.settings import registry_file

    file = registry_file(directory.path)
    if not directory.is_writable and not file.exists():
        return None
    from armarium.capabilities.registry.checks import file_problem
    from armarium.capabilities.registry.errors import RegistryUnusable
    from armarium.capabilities.registry.ownership import require_own_registry

    try:
        require_own_registry(file, found=True)
    except RegistryUnusable as error:
        raise ConfigError(error.message, hint=f"{error.hint}; or start with --no-registry") from error
    if (problem := file_problem(file)) is not None:
        raise ConfigError(problem.message, hint=f"{problem.hint}; or start with --no-registry")
    return {"project": str(directory.path)}


MANIFEST = Manifest(
    "registry",
    open_capability,
    state_paths=state_paths,
    add_commands=add_commands,
    directory_section=directory_section,
    error_style=error_style,
    confirmable_files=confirmable_files,
    directory_flag=DirectoryFlag("registry", "Record findings and issues about files in DIR/.armarium."),
)
