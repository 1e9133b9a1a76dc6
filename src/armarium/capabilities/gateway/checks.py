"""The checks of `armarium doctor` for the gateway."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from armarium.capabilities.gateway.config.files import (
    SEARCH_ORDER,
    StdioTransport,
    has_config_folder,
    read_server_config,
)
from armarium.capabilities.gateway.errors import ServerConfigInvalid
from armarium.capabilities.gateway.settings import (
    FEATURE_VARIABLE,
    GatewaySettings,
    config_directory,
    is_enabled,
    usable_variables,
)
from armarium.capability import CheckResult, Facilities


def check(section: GatewaySettings | None, facilities: Facilities) -> Iterator[CheckResult]:
    """Check the configuration files and that the programs of servers exist. Starts none of them."""
    if section is None:
        return
    if not is_enabled(section):
        yield CheckResult("gateway", "warn", "disabled", f"see `gateway.enabled` and {FEATURE_VARIABLE}")
        return
    directory = config_directory(section)
    if not has_config_folder(directory):
        detail = f"neither {' nor '.join(SEARCH_ORDER)} exists in {directory}"
        hint = "see `gateway.config_dir`; a relative path starts at the server's working directory"
        yield CheckResult("gateway servers", "warn", detail, hint)
        return
    try:
        config = read_server_config(directory, usable_variables(section))
    except ServerConfigInvalid as error:
        for problem in error.problems:
            yield CheckResult("gateway servers", "fail", problem, "correct the file")
        return
    enabled = [spec for spec in config.servers.values() if spec.enabled]
    yield CheckResult("gateway servers", "ok", f"{len(enabled)} of {len(config.servers)} enabled")
    for spec in enabled:
        program = spec.transport
        if isinstance(program, StdioTransport) and not shutil.which(program.command, path=program.env.get("PATH")):
            detail = f"{spec.name} runs {program.command}, which does not exist"
            yield CheckResult("gateway servers", "warn", detail, "install it, or correct `command`")
