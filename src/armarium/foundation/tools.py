"""Tools: their declaration, schemas, error format, and how they are bound to a service."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar, get_type_hints

import orjson
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from armarium.foundation.byte_transfers import ByteTransfer
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.errors import ArmariumError, InvalidArgument
from armarium.foundation.schema import Json, JsonSchema
from armarium.foundation.security.access import READ, WRITE, Access
from armarium.foundation.security.identity import Principal

ServiceT = TypeVar("ServiceT")


@dataclass(frozen=True, slots=True)
class Part:
    """One target of a call that has several, with its outcome."""

    root: str | None
    path: str | None
    error: ArmariumError | None = None
    duration_ms: float = 0.0


RunTool = Callable[[str, Mapping[str, Any]], Awaitable[tuple[Json, ArmariumError | None]]]
"""Runs a tool by its name. Returns its MCP result and, if it failed, the error."""


async def _run_no_tool(name: str, arguments: Mapping[str, Any]) -> tuple[Json, ArmariumError | None]:
    raise AssertionError("only a dispatcher can run further tools")


Emit = Callable[[str, Json], None]
"""Sends a part of the result to a caller who follows the call: its kind and its content. Raises if the caller does
not keep up."""


def emit_nothing(kind: str, content: Json) -> None:
    """For callers who do not follow the call."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: its caller, and its cancellation."""

    principal: Principal
    cancellation: Cancellation = field(default_factory=Cancellation)
    credential: str | None = field(default=None, repr=False)
    """The raw key, for services that act for the caller elsewhere. It must not outlive the call."""
    denials: list[ArmariumError] = field(default_factory=list[ArmariumError])
    """Denials inside a call that succeeds. They are recorded like denied calls."""
    parts: list[Part] = field(default_factory=list[Part])
    """Targets of a call that can have several. Each is recorded; a single one together with the call."""
    caller: str = ""
    """Identifies the caller for fair scheduling: the same for all calls of one key or, without keys, of one session."""
    session: str | None = None
    """The MCP session of the call, if it has one."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The `_meta` of the MCP request: what the client's application, not its model, says about the call. It has not
    been validated."""
    run_tool: RunTool = _run_no_tool
    """Runs another tool that this caller may use here. That is a call of its own, checked and recorded. What it emits
    reaches the same caller."""
    emit: Emit = emit_nothing
    """Sends a part of the result before the rest is known, if the caller follows the call. The result has all of it."""
    transfer: ByteTransfer | None = field(default=None, repr=False)
    """The bytes of the HTTP request, for tools that send or receive files."""


class Args(BaseModel):
    """Base class for the arguments of a tool. Field docstrings become the descriptions that models read."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class NoArgs(Args):
    """For tools without arguments."""


def message_and_hint(error: ArmariumError) -> str:
    return f"{error.message}\nhint: {error.hint}" if error.hint else error.message


@dataclass(frozen=True, slots=True)
class ErrorStyle:
    """The format of errors that a capability's contract requires."""

    render: Callable[[ArmariumError], Json]
    """Renders the error for `structuredContent`."""
    schema: JsonSchema
    text: Callable[[ArmariumError], str] = message_and_hint
    translate: Callable[[ArmariumError], ArmariumError] = lambda error: error
    """Replaces a shared error by the contract's own, before it is reported or recorded."""
    in_output_schema: bool = True
    """Whether advertised output schemas include the error."""


def render_error(error: ArmariumError) -> Json:
    """The default error envelope."""
    body: Json = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if error.hint:
        body["hint"] = error.hint
    details = {name: value for name, value in error.details.items() if value is not None}
    if details:
        body["details"] = details
    return {"error": body}


ERROR_ENVELOPE = ErrorStyle(
    render_error,
    {
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "properties": {
                    "code": {"type": "string", "description": "Stable; branch on this, not on the message."},
                    "message": {"type": "string"},
                    "retryable": {"type": "boolean", "description": "Whether the same call can succeed later."},
                    "hint": {"type": "string", "description": "What to do next."},
                    "details": {"type": "object"},
                },
                "required": ["code", "message", "retryable"],
            }
        },
        "required": ["error"],
    },
)


@dataclass(frozen=True, slots=True)
class Relayed:
    """The result of a remote tool, passed on unchanged: MCP content blocks of any kind."""

    content: Sequence[Json]
    structured: Json | None = None
    is_error: bool = False


Run = Callable[[Call, Mapping[str, Any]], Awaitable[Json | Relayed]]


def as_json_text(result: Json) -> list[str]:
    """The result as JSON text, for clients that ignore structured content."""
    try:
        return [orjson.dumps(result).decode()]
    except TypeError:
        # Servers may send integers of any size. Unpaired surrogates are an error here, too.
        text = json.dumps(result, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return [text.encode().decode()]


def no_text(result: Json) -> list[str]:
    """For results that no model reads."""
    return []


def unbounded(arguments: Mapping[str, Any]) -> float:
    """The deadline of a transfer, which takes as long as its client. The surface notices a client that stops."""
    return math.inf


@dataclass(frozen=True, slots=True, eq=False)
class ToolSpec:
    """A tool, local or remote. Build it with `declare_tool`, `local_tool` or `remote_tool`. Two tools are never equal:
    the server caches what it compiles for each.

    Arguments are validated twice. The dispatcher checks them against `input_schema`, which clients see: its errors name
    the argument and suggest a fix. A local tool then converts them to its `Args` model, for typed values. That fails
    only for values that fit the schema and have no Python representation.
    """

    name: str
    description: str
    input_schema: JsonSchema
    run: Run
    """Runs the tool with arguments that match `input_schema`."""
    completed: Callable[[Call, Mapping[str, Any]], Mapping[str, Any]] = lambda call, arguments: arguments
    """Completes the arguments before they are validated, for instance with values that the caller cannot set."""
    null_is_absent: bool = True
    """Whether a null argument counts as missing."""
    output_schema: JsonSchema | None = None
    title: str | None = None
    read_only: bool = False
    role: str = ""
    """What groups of callers can be named for. By default `read` if it is `read_only`, otherwise `write`."""
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    runs_tools: bool = False
    """Whether it only runs other tools, each of which is checked as a call of its own."""
    for_every_caller: bool = False
    """Whether every key permits it: it shows callers only what is theirs."""
    is_search: bool = False
    """Whether calls count as searches, whose concurrency is limited for each caller."""
    question_argument: str = ""
    """The argument with the question, if it answers questions that may refer to those in `earlier`. Threads use it."""
    content_fields: frozenset[str] = frozenset()
    """Arguments with file content. Logs and the audit log have only a fingerprint of them."""
    secret_fields: frozenset[str] = frozenset()
    """Arguments that are secrets. Logs and the audit log have nothing of them, not even a hash."""
    subject: tuple[str, str] = ("root", "path")
    """The two arguments that the audit log shows as root and path."""
    deadline_s: Callable[[Mapping[str, Any]], float | None] = lambda arguments: None
    """Deadline of a call in seconds; None means the default of the settings."""
    text: Callable[[Json], list[str]] = as_json_text
    """Converts the result to text blocks, in addition to the structured content."""
    meta: Callable[[Json], Json] | None = None
    """Returns what programs, not models, should know about a result: its `_meta`."""
    errors: ErrorStyle = ERROR_ENVELOPE

    def __post_init__(self) -> None:
        if not self.role:
            object.__setattr__(self, "role", READ if self.read_only else WRITE)

    def advertised_output(self) -> Json | None:
        """The output schema as advertised to clients: the result or, unless the contract forbids it, the error."""
        if self.output_schema is None:
            return None
        result = dict(self.output_schema)
        if not self.errors.in_output_schema:
            return result
        definitions = result.pop("$defs", None)
        schema: Json = {"type": "object", "anyOf": [result, dict(self.errors.schema)]}
        return schema | {"$defs": definitions} if definitions else schema


class ToolProvider(Protocol):
    """Supplies tools that change while the server runs, and that not every caller may see. The server asks it for every
    list and every call, so it must answer from memory. A tool that has not changed must be the same object each time:
    the server keeps what it compiled for it."""

    def tools_for(self, principal: Principal) -> Sequence[ToolSpec]:
        """The tools that the caller may see and call now, in the order to list them."""
        ...

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` in the event loop whenever the tools of any caller may have changed. The returned function
        unsubscribes it."""
        ...


@dataclass(frozen=True, slots=True)
class DeclaredTool(Generic[ServiceT]):
    """A tool that is declared once, at module level, and bound to a service when its capability opens."""

    spec: ToolSpec
    """Everything about the tool. It cannot run."""
    function: Callable[[ServiceT, Call, Any], Awaitable[Any]]
    arguments: type[Args]

    def bind(self, service: ServiceT, access: Access | None = None) -> ToolSpec:
        """The tool, run by this service. With `access`, every call first checks that the caller may use the tool."""

        async def run(call: Call, values: Mapping[str, Any]) -> Json:
            if access is not None:
                access.require(call.principal, self.spec)
            try:
                arguments = self.arguments.model_validate(values)
            except ValidationError as error:
                # A schema admits some values that cannot be represented, such as integers of 30 digits.
                field = ".".join(str(step) for step in error.errors(include_input=False)[0]["loc"])
                raise InvalidArgument(f"`{field}` cannot be represented", field=field) from error
            return await self.function(service, call, arguments)

        return replace(self.spec, run=run)


def declare_tool(
    name: str, function: Callable[[ServiceT, Call, Any], Awaitable[Any]], **traits: Any
) -> DeclaredTool[ServiceT]:
    """Declare a tool run by `async def function(service, call: Call, args: SomeArgs) -> SomeResult`. The docstring of
    the function is the tool's description."""
    hints = get_type_hints(function)
    arguments: type[Args] = hints["args"]
    traits.setdefault("input_schema", arguments.model_json_schema(schema_generator=_PlainSchema))
    traits.setdefault("output_schema", TypeAdapter(hints["return"]).json_schema(schema_generator=_PlainSchema))
    docstring = inspect.getdoc(function)
    assert docstring, f"tool {name} has no docstring"
    description = "\n\n".join(" ".join(paragraph.split()) for paragraph in docstring.split("\n\n"))
    spec = ToolSpec(name=name, description=description, run=_unbound, **traits)
    return DeclaredTool(spec, function, arguments)


def bind_tools(
    tools: Iterable[DeclaredTool[ServiceT]], service: ServiceT, access: Access | None = None
) -> list[ToolSpec]:
    """All of these tools, run by this service, which checks `access` again."""
    return [tool.bind(service, access) for tool in tools]


async def _unbound(call: Call, values: Mapping[str, Any]) -> Json:
    raise AssertionError("a declared tool must be bound to a service before it can run")


def local_tool(
    name: str, function: Callable[[Call, Any], Awaitable[Any]], access: Access | None = None, **traits: Any
) -> ToolSpec:
    """A tool run by `async def function(call: Call, args: SomeArgs) -> SomeResult`, for a service in a closure. With
    `access`, every call first checks that the caller may use the tool."""

    async def run(service: None, call: Call, args: Any) -> Any:
        return await function(call, args)

    run.__doc__ = inspect.getdoc(function)
    run.__annotations__ = get_type_hints(function)
    return declare_tool(name, run, **traits).bind(None, access)


def remote_tool(name: str, description: str, input_schema: JsonSchema, forward: Run, **traits: Any) -> ToolSpec:
    """A tool that another server runs; `forward` passes the arguments on unchanged, including nulls."""
    unchanged: dict[str, Any] = {"null_is_absent": False, "errors": replace(ERROR_ENVELOPE, in_output_schema=False)}
    return ToolSpec(name=name, description=description, input_schema=input_schema, run=forward, **(unchanged | traits))


class _PlainSchema(GenerateJsonSchema):
    """Generates concise schemas: an optional argument is not required instead of nullable, and there are no titles."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def list_schema(self, schema: core_schema.ListSchema) -> JsonSchemaValue:
        described, items = super().list_schema(schema), schema.get("items_schema")
        if items is not None and items["type"] == "nullable":
            # An item cannot be left out.
            described["items"] = {"anyOf": [described["items"], {"type": "null"}]}
        return described

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        described = super().default_schema(schema)
        if described.get("default", ...) is None:
            described.pop("default")
        return described

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _without_boilerplate(super().model_schema(schema))

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _without_boilerplate(super().typed_dict_schema(schema))


def _without_boilerplate(schema: JsonSchemaValue) -> JsonSchemaValue:
    schema.pop("title", None)
    schema.pop("description", None)
    return schema
