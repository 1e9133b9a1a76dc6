"""What `armarium doctor` finds out about the gateway before a start."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from armarium.capabilities.gateway.config.files import (
    SEARCH_ORDER,
    ServerSpec,
    StdioTransport,
    has_files,
    read_registry,
)
from armarium.capabilities.gateway.errors import RegistryInvalid
from armarium.capabilities.gateway.settings import FEATURE_VARIABLE, GatewaySettings, config_directory, is_enabled
from armarium.capability import CheckResult, Facilities


def check(section: GatewaySettings | None, facilities: Facilities) -> Iterator[CheckResult]:
    """Read the files of servers, and look whether their programs are there; start none."""
    if section is None:
        return
    if not is_enabled(section):
        yield CheckResult("gateway", "warn", "is switched off", f"see `gateway.enabled` and {FEATURE_VARIABLE}")
        return
    directory = config_directory(section)
    if not has_files(directory):
        told = f"there is neither {' nor '.join(SEARCH_ORDER)} in {directory}"
        hint = "see `gateway.config_dir`; a relative one begins at the directory that the server is started in"
        yield CheckResult("gateway servers", "warn", told, hint)
        return
    try:
        registry = read_registry(directory)
    except RegistryInvalid as error:
        for problem in error.problems:
            yield CheckResult("gateway servers", "fail", problem, "mend the file")
        return
    enabled = [spec for spec in registry.servers.values() if spec.enabled]
    yield CheckResult("gateway servers", "ok", f"{len(enabled)} of {len(registry.servers)} enabled")
    for spec in enabled:
        if (missing := _missing_program(spec)) is not None:
            told = f"{spec.name} starts {missing}, which is not there"
            yield CheckResult("gateway servers", "warn", told, "install it, or correct `command`")


def _missing_program(spec: ServerSpec) -> str | None:
    if not isinstance(spec.transport, StdioTransport):
        return None
    path = spec.transport.env.get("PATH")
    return None if shutil.which(spec.transport.command, path=path) else spec.transport.command
