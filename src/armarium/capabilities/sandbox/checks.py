"""The sandbox's part of `armarium doctor`: what the kernel supports, and whether the roots are usable."""

from __future__ import annotations

import os
from collections.abc import Generator

from armarium.capabilities.sandbox.deny_list import DENY_WRITE
from armarium.capabilities.sandbox.roots import WRITING_TOOLS
from armarium.capabilities.sandbox.settings import RootSettings, SandboxSettings
from armarium.capability import CheckResult, Facilities
from armarium.foundation.errors import ConfigError
from armarium.foundation.files.beneath import kernel_has_openat2
from armarium.foundation.files.errors import InvalidPattern
from armarium.foundation.files.ignore import IgnoreRules
from armarium.foundation.files.landlock import supported_abi
from armarium.foundation.files.own_files import private_places
from armarium.foundation.files.path_rules import PathRules, patterns_of


def check(settings: SandboxSettings | None, facilities: Facilities) -> Generator[CheckResult]:
    """Check the kernel, and every root in the settings."""
    yield _confinement()
    yield _second_layer(settings)
    if settings is not None:
        try:
            settings.require_separate_rules()
        except ConfigError as error:
            yield CheckResult("roots", "fail", error.message, error.hint)
    for root in settings.roots if settings else ():
        yield _root(root)
        try:
            IgnoreRules.from_lines(root.ignore)
            PathRules(patterns_of(root.deny_write, DENY_WRITE))
            # A state directory inside a root is hidden. It cannot be a root itself.
            private_places([facilities.state_dir], root.path)
        except InvalidPattern as error:
            yield CheckResult(
                f"root {root.name}", "fail", error.message, hint="correct the root's `ignore` or `deny_write`"
            )
        except ConfigError as error:
            yield CheckResult(f"root {root.name}", "fail", error.message, error.hint)


def _confinement() -> CheckResult:
    if kernel_has_openat2():
        return CheckResult("openat2", "ok", "the kernel confines every path to its root")
    return CheckResult(
        "openat2",
        "warn",
        "missing; paths are resolved one name at a time, which is as safe but slower",
        hint="Linux 5.6 or later has it; in a container, let the seccomp profile allow openat2",
    )


def _second_layer(settings: SandboxSettings | None) -> CheckResult:
    abi = supported_abi()
    if settings and settings.landlock == "off":
        return CheckResult("landlock", "warn", "switched off", hint="remove `landlock: off` from the sandbox section")
    if abi:
        return CheckResult("landlock", "ok", f"version {abi}; the kernel confines the worker threads to the roots")
    return CheckResult(
        "landlock",
        "warn",
        "missing; there is no second layer of confinement besides openat2",
        hint="Linux 5.13 or later has it, when started with landlock among its security modules",
    )


def _root(root: RootSettings) -> CheckResult:
    subject = f"root {root.name}"
    path = os.path.expanduser(root.path)
    if not os.path.isdir(path):
        problem = "is not a directory" if os.path.exists(path) else "does not exist"
        return CheckResult(subject, "fail", f"{path} {problem}", hint="create it, or correct the root's `path`")
    if not os.access(path, os.R_OK | os.X_OK):
        return CheckResult(subject, "fail", f"{path} cannot be read", hint=f"let this user read and enter it: {path}")
    if root.read_only or set(root.allowed_tools).isdisjoint(("*", *WRITING_TOOLS)):
        return CheckResult(subject, "ok", f"{path} (read-only)")
    if not os.access(path, os.W_OK):
        return CheckResult(
            subject, "warn", f"{path} cannot be written", hint="set `read_only: true`, or let this user write there"
        )
    if root.deny_write is False:
        message = f"{path}: agents may write what programs execute, such as .git/hooks"
        return CheckResult(subject, "warn", message, hint="remove `deny_write: false` from the root")
    return CheckResult(subject, "ok", path)
