"""The flags of `armarium up` and `armarium stdio` that omit a capability, as the manifests declare them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any

from typer import Option

from armarium.assembly import MANIFESTS

WantedCapabilities = Mapping[str, bool] | None
"""For each capability with a flag, whether it is to serve the directory."""


def takes_directory_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `wanted` of a command by the flags, and pass their values to it."""
    flags = {manifest.name: manifest.directory_flag for manifest in MANIFESTS if manifest.directory_flag is not None}

    @wraps(command)
    def with_flags(**given: Any) -> None:
        wanted = {capability: given.pop(flag.word) for capability, flag in flags.items()}
        command(**given, wanted=wanted)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.name != "wanted":
            parameters.append(parameter)
            continue
        for flag in sorted(flags.values(), key=lambda flag: flag.word):
            option = Annotated[bool, Option(f"--{flag.word}/--no-{flag.word}", help=flag.help)]
            parameters.append(parameter.replace(name=flag.word, annotation=option, default=True))
    with_flags.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    setattr(with_flags, "__signature__", inspect.Signature(parameters))  # noqa: B010 functions declare no such attribute
    return with_flags
