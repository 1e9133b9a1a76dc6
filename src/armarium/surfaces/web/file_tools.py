"""The tools of the JSON API for files of any capability: their bytes, tickets for them, and descriptions of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pydantic import Field
from typing_extensions import TypedDict

from armarium.capability import Capability
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.known_files import FileKnowledge
from armarium.foundation.refs import FileRef
from armarium.foundation.routes import RawFiles, Route
from armarium.foundation.security.access import READ, Access
from armarium.foundation.tools import Args, Call, ToolSpec, local_tool
from armarium.surfaces.web.tickets import Tickets

FILES: Final = "files"
"""The capability of these tools in logs and in the audit log."""

_MAX_REF: Final = 20_000


class FileTools:
    """The tools and routes that belong to no single capability."""

    def __init__(self, capabilities: Sequence[Capability], access: Sequence[Access]) -> None:
        """`access` says who may use each of the capabilities."""
        self.raw_files: Sequence[RawFiles] = [each.raw_files for each in capabilities if each.raw_files is not None]
        """The files whose bytes are served."""
        self.tickets = Tickets()
        pairs = zip(access, capabilities, strict=True)
        describe = _known_file_tool([(rule, each.knowledge) for rule, each in pairs if each.knowledge is not None])
        self.tools: Sequence[ToolSpec] = [describe, self.tickets.tool]
        self.routes: Sequence[Route] = [
            Route("GET", "/files", describe, "Describe a file", at_root=True),
            self.tickets.route,
        ]


class KnownFileArgs(Args):
    ref: str = Field(max_length=_MAX_REF)
    """Reference to the file, such as `root://work/a.py`, `store://notes/a.md` or `corpus://docs/a.pdf`."""


class KnownFile(TypedDict):
    ref: str
    name: str
    known: dict[str, dict[str, Any]]
    """What each capability knows, by its name. One that knows nothing, or that the caller may not read, is missing."""


def _known_file_tool(knowledge: Sequence[tuple[Access, FileKnowledge]]) -> ToolSpec:
    """The tool behind the route, for what these capabilities know."""
    by_scheme = {each.scheme: (access, each) for access, each in knowledge if each.scheme is not None}

    async def describe_file(call: Call, args: KnownFileArgs) -> KnownFile:
        """Describe a file by its reference: its paths in roots, its document in the corpus, its id and the number of
        its findings in the registry, its version in the store. The file need not exist any more."""
        ref = FileRef.parse(args.ref)
        if ref is None or ref.scheme not in by_scheme:
            known = " or ".join(f"{scheme}://…" for scheme in by_scheme)
            raise InvalidArgument(f"`ref` must be a reference to a file, {known}", field="ref")
        access, owner = by_scheme[ref.scheme]
        access.require_role(call.principal, READ)
        file = await owner.locate(call, ref)
        found: dict[str, dict[str, Any]] = {}
        for access, each in knowledge:
            if access.admits(call.principal, READ) and (facts := await each.describe(call, file)) is not None:
                found[access.capability] = facts
        return {"ref": str(file.ref), "name": file.ref.name, "known": found}

    return local_tool(
        "describe_file",
        describe_file,
        title="Describe a file",
        read_only=True,
        idempotent=True,
        # Each capability is asked only for what the caller may read there.
        for_every_caller=True,
        subject=("", "ref"),
    )
