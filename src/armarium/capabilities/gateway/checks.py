"""The checks of `armarium doctor` for the gateway."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress

from armarium.capabilities.gateway.config.files import (
    SEARCH_ORDER,
    HttpTransport,
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
from armarium.foundation.security.access import AccessRule


def destinations(section: GatewaySettings) -> Iterator[tuple[str, str]]:
    """The addresses to which calls and queries are sent, each with the purpose."""
    if not is_enabled(section):
        return
    if section.answers.model is not None:
        yield section.answers.base_url, "answers"
    if section.rerank.base_url is not None:
        yield section.rerank.base_url, "reranking"
    # Opening the gateway reports a mistake in the files.
    with suppress(ServerConfigInvalid):
        for spec in read_server_config(config_directory(section), usable_variables(section)).servers.values():
            if spec.enabled and isinstance(spec.transport, HttpTransport):
                yield spec.transport.url, f"calls of {spec.name}"


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
        if spec.is_exclusive and not spec.groups:
            detail = f"{spec.name} has `is_exclusive` and no groups, so every caller sees it"
            yield CheckResult("gateway servers", "warn", detail, "add `groups` to restrict who sees it")


def server_rules(section: GatewaySettings) -> Iterator[tuple[str, AccessRule]]:
    """The groups of each enabled server and source; none if the files are invalid, which `check` reports."""
    try:
        servers = read_server_config(config_directory(section), usable_variables(section)).servers
    except ServerConfigInvalid:
        return
    for spec in servers.values():
        if spec.enabled:
            yield f"server {spec.name}", AccessRule(frozenset(spec.groups))
            for source in spec.data_sources:
                yield f"source {spec.name}:{source.id}", AccessRule(frozenset(source.groups))
