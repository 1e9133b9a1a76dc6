"""A tool said in HTTP: the method and the path it answers to, and where a request carries its arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from armarium.foundation.identity import Principal
from armarium.foundation.tools import ToolSpec

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Place = Literal["path", "query", "body", "preset"]

_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_PATH = re.compile(r"(/([a-z0-9][a-z0-9._-]*|\{[a-z_]+\}))+")
_NAME_IN_PATH = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Route:
    """A way to a tool over plain HTTP.

    Every argument of the tool has one place. Those in braces stand in the path. Of the others, GET and DELETE take all
    from the query; POST, PUT and PATCH take those in `query` from there and the rest from a JSON object.
    """

    method: Method
    path: str
    """Below the capability's own, such as `/{project}/file`; see `at_root`."""
    tool: ToolSpec
    summary: str
    success: int = 200
    """The status of an answer; 201 where something was made, 204 where there is nothing to say."""
    query: frozenset[str] = frozenset()
    whole_body: str | None = None
    """The argument that is the body as such, whatever JSON it is; the others then stand in the query."""
    presets: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments that the route decides; a request cannot."""
    at_root: bool = False
    """Whether the path stands below the root of the API instead, where a contract wants it there."""
    groups: frozenset[str] = frozenset()
    """Only callers with one of these may come this way; everybody if there are none. Other ways to the tool have their
    own rules."""

    def __post_init__(self) -> None:
        if _PATH.fullmatch(self.path) is None:
            raise ValueError(f"{self.path} is not a path of a route")
        named = [*_NAME_IN_PATH.findall(self.path), *self.query, *self.presets]
        if self.whole_body is not None:
            named.append(self.whole_body)
        unknown = set(named) - self.arguments
        if unknown or len(set(named)) < len(named):
            raise ValueError(f"{self.method} {self.path} names arguments twice, or that {self.tool.name} does not take")
        if not self.takes_body and (self.query or self.whole_body):
            raise ValueError(f"{self.method} {self.path} takes everything from the query as it is")

    def path_of(self, capability: str) -> str:
        """Where it stands below the root of the API, for a capability of this name."""
        return self.path if self.at_root else f"/{capability}{self.path}"

    def admits(self, principal: Principal) -> bool:
        """Whether the caller may come this way."""
        return not self.groups or not self.groups.isdisjoint(principal.groups)

    @property
    def arguments(self) -> frozenset[str]:
        """Everything the tool takes."""
        return frozenset(self.tool.input_schema.get("properties", ()))

    @property
    def takes_body(self) -> bool:
        """Whether a request may have a body."""
        return self.method in _METHODS_WITH_BODY

    def place_of(self, argument: str) -> Place | None:
        """Where a request carries an argument; None if the tool does not know it."""
        if argument not in self.arguments:
            return None
        if argument in self.presets:
            return "preset"
        if argument in _NAME_IN_PATH.findall(self.path):
            return "path"
        if not self.takes_body or argument in self.query:
            return "query"
        return "body" if self.whole_body in (None, argument) else "query"
