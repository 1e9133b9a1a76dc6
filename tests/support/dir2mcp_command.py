"""Types and the settings template for the tests of `dir2mcp`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.command_line import Command, Outcome

TEMPLATE = Path(__file__).with_name("contract_template.yaml")
Quick = Callable[..., Outcome]
Start = Callable[..., Command]
