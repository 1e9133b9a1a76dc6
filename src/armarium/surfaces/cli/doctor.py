"""`armarium doctor`: checks everything that a server needs, and prints how to solve problems."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from platform import python_version

import typer

from armarium.assembly import MANIFESTS
from armarium.capability import CheckResult
from armarium.checks import capability_checks, open_files, server_checks
from armarium.command_line.options import settings_file
from armarium.command_line.output import show, show_json
from armarium.foundation.errors import ConfigError
from armarium.foundation.settings.loader import load_settings
from armarium.foundation.settings.model import CoreSettings
from armarium.settings import Settings, configured
from armarium.surfaces.cli.trust import require_trusted_files
from armarium.surfaces.console.page import HOW_TO_BUILD, is_built

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def run_checks(config: Path | None) -> list[CheckResult]:
    """The results of all checks. With invalid settings, only checks that need no settings run."""
    first = [CheckResult("python", "ok", python_version()), _console()]
    try:
        file = settings_file(config)
        settings = load_settings(Settings, file, environ=os.environ)
        require_trusted_files(settings, config)
    except ConfigError as error:
        message = f"{error.message}; checks that need settings were skipped"
        return [*first, open_files(), CheckResult("settings", "fail", message, error.hint), *capability_checks(None)]
    return [*first, _settings(settings, file), *server_checks(settings, is_running=False)]


def _settings(settings: CoreSettings, file: Path | None) -> CheckResult:
    if file is None:
        return CheckResult("settings", "ok", "there is no armarium.yaml here; the defaults apply")
    if not configured(settings):
        sections = ", ".join(manifest.name for manifest in MANIFESTS)
        return CheckResult("settings", "fail", f"{file} configures no capability", hint=f"add a section: {sections}")
    return CheckResult("settings", "ok", str(file))


def _console() -> CheckResult:
    if is_built():
        return CheckResult("console", "ok", "built; `armarium console` prints a link that logs in")
    return CheckResult("console", "warn", "it is not built, and the server works without it", hint=HOW_TO_BUILD)


def show_results(results: Sequence[CheckResult], *, as_json: bool) -> None:
    if as_json:
        healthy = all(result.state != "fail" for result in results)
        show_json({"ok": healthy, "findings": [asdict(result) for result in results]})
        return
    width = max(len(result.subject) for result in results)
    for result in results:
        state = f"{result.state:<4}"
        if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
            state = typer.style(state, fg=_COLOURS[result.state])
        show(f"{state}  {result.subject:<{width}}  {result.message}")
        if result.hint and result.state != "ok":
            show(f"{'':4}  {'':<{width}}  hint: {result.hint}")
