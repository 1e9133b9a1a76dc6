"""What the JSON API offers about files of any capability: their bytes, tickets for them, and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from armarium.capability import Capability
from armarium.foundation.routes import RawFiles, Route
from armarium.foundation.security.access import Access
from armarium.foundation.tools import ToolSpec
from armarium.surfaces.web.known_files import known_file_route, known_file_tool
from armarium.surfaces.web.tickets import Tickets

FILES: Final = "files"
"""The capability of these tools in logs and in the audit log."""


class FileTools:
    """The tools and routes that belong to no single capability."""

    def __init__(self, capabilities: Sequence[Capability], access: Sequence[Access]) -> None:
        """`access` says who may use each of the capabilities."""
        self.raw_files: Sequence[RawFiles] = [each.raw_files for each in capabilities if each.raw_files is not None]
        """The files whose bytes are served."""
        self.tickets = Tickets()
        pairs = zip(access, capabilities, strict=True)
        describe = known_file_tool([(rule, each.knowledge) for rule, each in pairs if each.knowledge is not None])
        self.tools: Sequence[ToolSpec] = [describe, self.tickets.tool]
        self.routes: Sequence[Route] = [known_file_route(describe), self.tickets.route]
