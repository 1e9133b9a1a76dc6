"""HTTP routes of tools: method, path, and where a request has each argument; and the tools for bytes of files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from armarium.foundation.refs import FileRef
from armarium.foundation.security.access import is_member
from armarium.foundation.security.identity import Principal
from armarium.foundation.tools import ToolSpec

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Place = Literal["path", "query", "body", "preset"]

Identify = Callable[[str, str], Principal | None]
"""Takes the arguments `name` and `token`."""

FOR_SAVING = "application/octet-stream"
"""The media type of files that no browser may show."""

_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_PATH = re.compile(r"(/([a-z0-9][a-z0-9._-]*|\{[a-z_]+\}))+")
_NAME_IN_PATH = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Route:
    """An HTTP route to a tool. Every argument of the tool has one location. Arguments in braces are in the path. For
    GET and DELETE, all others are in the query; for POST, PUT and PATCH, those in `query` are in the query and the rest
    in a JSON object."""

    method: Method
    path: str
    """Relative to the path of the capability, such as `/{project}/file`; see `at_root`."""
    tool: ToolSpec
    summary: str
    success: int = 200
    """Status of a successful response: 201 if something was created, 204 without content."""
    query: frozenset[str] = frozenset()
    whole_body: str | None = None
    """The argument that is the whole body, as any JSON. The others are in the query then."""
    raw_body: str | None = None
    """The argument that is the whole body, as base64, whatever its media type is. The others are in the query then."""
    presets: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments that the route sets and a request cannot."""
    at_root: bool = False
    """Whether the path is relative to the root of the API, as some contracts require."""
    identify: Identify | None = None
    """Finds the caller by the arguments, for a route whose URLs have a token of their own. It needs no key then."""
    is_file: bool = False
    """Whether the response is a file: the answer of the tool has its `name` and its content as `b64`."""
    media_type: str = FOR_SAVING
    """Of that file. Files of the default type are for saving; a browser may show others."""
    streams: bool = False
    """Whether a client may ask for `text/event-stream`: the parts that the tool emits, and the answer as the last
    event."""
    groups: frozenset[str] = frozenset()
    """Only callers in one of these groups may use the route; if empty, all callers. Other routes to the tool have their
    own rules."""

    def __post_init__(self) -> None:
        if _PATH.fullmatch(self.path) is None:
            raise ValueError(f"{self.path} is not a path of a route")
        named = [*_NAME_IN_PATH.findall(self.path), *self.query, *self.presets]
        named += [each for each in (self.whole_body, self.raw_body) if each is not None]
        unknown = set(named) - self.arguments
        if unknown or len(set(named)) < len(named):
            raise ValueError(f"{self.method} {self.path} names arguments twice, or that {self.tool.name} does not take")
        if not self.takes_body and (self.query or self.whole_body or self.raw_body):
            raise ValueError(f"{self.method} {self.path} takes everything from the query as it is")

    def path_of(self, capability: str) -> str:
        """The path relative to the root of the API, for a capability of this name."""
        return self.path if self.at_root else f"/{capability}{self.path}"

    def admits(self, principal: Principal) -> bool:
        """Whether the caller may use the route."""
        return is_member(principal, self.groups)

    @property
    def arguments(self) -> frozenset[str]:
        """Names of the tool's arguments."""
        return frozenset(self.tool.input_schema.get("properties", ()))

    @property
    def takes_body(self) -> bool:
        """Whether a request may have a body."""
        return self.method in _METHODS_WITH_BODY

    def place_of(self, argument: str) -> Place | None:
        """Where a request has the argument; None if the tool has no such argument."""
        if argument not in self.arguments:
            return None
        if argument in self.presets:
            return "preset"
        if argument in _NAME_IN_PATH.findall(self.path):
            return "path"
        if not self.takes_body or argument in self.query:
            return "query"
        return "body" if (self.whole_body or self.raw_body) in (None, argument) else "query"


@dataclass(frozen=True, slots=True)
class DeclaredRoute:
    """A route that is declared once, at module level, and bound to the tool of this name when the tool can run."""

    method: Method
    path: str
    tool: str
    summary: str
    traits: Mapping[str, Any]


def declare_route(method: Method, path: str, tool: str, summary: str, **traits: Any) -> DeclaredRoute:
    """Declare a route to the tool of this name. The traits are the other fields of `Route`."""
    return DeclaredRoute(method, path, tool, summary, traits)


def bind_routes(routes: Iterable[DeclaredRoute], tools: Iterable[ToolSpec], **traits: Any) -> list[Route]:
    """These routes to these tools. `traits` hold for all of them, instead of their own."""
    by_name = {tool.name: tool for tool in tools}
    return [
        Route(each.method, each.path, by_name[each.tool], each.summary, **{**each.traits, **traits}) for each in routes
    ]


@dataclass(frozen=True, slots=True)
class RawFiles:
    """The tools that send and receive the bytes of the files which references of one scheme name."""

    scheme: str
    arguments: Callable[[FileRef], Mapping[str, str]]
    """The arguments of the tools that name the file of a reference."""
    send: ToolSpec
    receive: ToolSpec | None = None
    """None: the files cannot be uploaded."""

    @property
    def tools(self) -> list[ToolSpec]:
        return [self.send] if self.receive is None else [self.send, self.receive]
