"""The server for the official conformance suite: our transport, gate, sessions and dispatcher, with the tools, prompts
and resources that the suite requires."""

from __future__ import annotations

import base64
import logging
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext

from armarium.capability import ServerIdentity
from armarium.foundation.errors import ArmariumError
from armarium.foundation.schema import Json
from armarium.foundation.security.identity import Authenticator
from armarium.foundation.settings.model import SessionSettings
from armarium.foundation.sockets import listen
from armarium.foundation.telemetry import Metrics, log_as_json
from armarium.foundation.tools import Args, Call, ToolSpec, local_tool, remote_tool
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import Gate
from armarium.surfaces.mcp.app import McpApp
from armarium.surfaces.mcp.http_server import serve_http
from armarium.surfaces.mcp.server import McpServer, mcp_server
from armarium.surfaces.mcp.sessions import Sessions

_log = logging.getLogger("armarium.conformance")

Context = ServerRequestContext[Any, Any]
Fixture = Callable[[Context, dict[str, Any]], Awaitable[list[types.ContentBlock]]]

_PAUSE_S = 0.05
"""The suite requires a pause between notifications."""

_PIXEL = base64.b64encode(
    base64.b16decode(
        "89504E470D0A1A0A0000000D49484452000000010000000108020000009077"
        "53DE0000000C49444154789C63F8CFC0000003010100C9FE92EF0000000049454E44AE426082"
    )
).decode()
_SILENCE = base64.b64encode(
    b"RIFF"
    + (36).to_bytes(4, "little")
    + b"WAVEfmt "
    + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8)
    + b"data\0\0\0\0"
).decode()


class Failed(ArmariumError):
    """An error that a tool reports on purpose."""

    code = "FAILED_ON_PURPOSE"


class Nothing(Args):
    """No argument at all."""


def dispatched_tools() -> list[ToolSpec]:
    """The tools that run through our dispatcher."""

    async def test_simple_text(call: Call, args: Nothing) -> Json:
        """Answer with a text."""
        return {"text": "This is a simple text response for testing."}

    async def test_error_handling(call: Call, args: Nothing) -> Json:
        """Report an error."""
        raise Failed("This tool intentionally returns an error for testing")

    async def keep_schema(call: Call, arguments: Any) -> Json:
        return {"accepted": True}

    address = {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": address},
        "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
        "additionalProperties": False,
    }
    return [
        local_tool("test_simple_text", test_simple_text),
        local_tool("test_error_handling", test_error_handling),
        remote_tool("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", schema, keep_schema),
    ]


def _text(text: str) -> types.TextContent:
    return types.TextContent(text=text)


def _image() -> types.ImageContent:
    return types.ImageContent(data=_PIXEL, mime_type="image/png")


def _resource(uri: str, text: str, mime_type: str = "text/plain") -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, text=text, mime_type=mime_type))


async def _image_content(context: Context, arguments: dict[str, Any]) -> list[types.ContentBlock]:
    return [_image()]


async def _audio_content(context: Context, arguments: dict[str, Any]) -> list[types.ContentBlock]:
    return [types.AudioContent(data=_SILENCE, mime_type="audio/wav")]


async def _embedded_resource(context: Context, arguments: dict[str, Any]) -> list[types.ContentBlock]:
    return [_resource("test://embedded-resource", "This is an embedded resource content.")]


async def _multiple_content_types(context: Context, arguments: dict[str, Any]) -> list[types.ContentBlock]:
    mixed = _resource("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
    return [_text("Multiple content types test:"), _image(), mixed]


async def _with_logging(context: Context, arguments: dict[str, Any]) -> list[types.ContentBlock]:
    for entry in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        params = types.LoggingMessageNotificationParams(level="info", data=entry)
        await context.session.send_notification(
            types.LoggingMessageNotification(params=params), related_request_id=context.request_id
        )
        await anyio.sleep(_PAUSE_S)
    return [_text("Logged three times")]


async def _with_progress(context: Context, arguments: dict[str, Any]) -> list[types.ContentBlock]:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100)
        await anyio.sleep(_PAUSE_S)
    return [_text("Told progress three times")]


async def _sampling(context: Context, arguments: dict[str, Any]) -> list[types.ContentBlock]:
    message = types.SamplingMessage(role="user", content=_text(arguments["prompt"]))
    asked = types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=100))
    said = await context.session.send_request(asked, types.CreateMessageResult)
    return [_text(f"LLM response: {said.content}")]


async def _elicited(context: Context, message: str, properties: dict[str, Any], required: list[str]) -> str:
    schema = {"type": "object", "properties": properties, "required": required}
    said = await context.session.elicit_form(message, schema, related_request_id=context.request_id)
    return f"action={said.action}, content={said.content}"


async def _elicitation(context: Context, arguments: dict[str, Any]) -> list[types.ContentBlock]:
    properties = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    said = await _elicited(context, arguments["message"], properties, ["username", "email"])
    return [_text(f"User response: {said}")]


async def _elicitation_defaults(context: Context, arguments: dict[str, Any]) -> list[types.ContentBlock]:
    properties = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return [_text(f"Elicitation completed: {await _elicited(context, 'Correct what is wrong', properties, [])}")]


async def _elicitation_enums(context: Context, arguments: dict[str, Any]) -> list[types.ContentBlock]:
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{number}", "title": f"Choice {number}"} for number in (1, 2, 3)]
    properties = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return [_text(f"Elicitation completed: {await _elicited(context, 'Choose', properties, [])}")]


async def _reconnection(context: Context, arguments: dict[str, Any]) -> list[types.ContentBlock]:
    return [_text("Reconnection test completed")]


def _argument(name: str) -> Json:
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


_NO_ARGUMENTS: Json = {"type": "object", "properties": {}}
SPEAKING_TOOLS: dict[str, tuple[Fixture, Json]] = {
    "test_image_content": (_image_content, _NO_ARGUMENTS),
    "test_audio_content": (_audio_content, _NO_ARGUMENTS),
    "test_embedded_resource": (_embedded_resource, _NO_ARGUMENTS),
    "test_multiple_content_types": (_multiple_content_types, _NO_ARGUMENTS),
    "test_tool_with_logging": (_with_logging, _NO_ARGUMENTS),
    "test_tool_with_progress": (_with_progress, _NO_ARGUMENTS),
    "test_sampling": (_sampling, _argument("prompt")),
    "test_elicitation": (_elicitation, _argument("message")),
    "test_elicitation_sep1034_defaults": (_elicitation_defaults, _NO_ARGUMENTS),
    "test_elicitation_sep1330_enums": (_elicitation_enums, _NO_ARGUMENTS),
    "test_reconnection": (_reconnection, _NO_ARGUMENTS),
}
"""Tools with content types and client requests that no capability has yet. They use the same sessions and exchanges."""


def add_tools(server: McpServer) -> None:
    """Add the tools that send requests to the client to the dispatched tools."""
    listed, called = server.get_request_handler("tools/list"), server.get_request_handler("tools/call")
    assert listed is not None
    assert called is not None

    async def list_tools(context: Context, params: types.PaginatedRequestParams) -> types.ListToolsResult:
        ours: Any = await listed.handler(context, params)
        added = [
            types.Tool(name=name, description=f"Fixture {name}", input_schema=schema)
            for name, (_, schema) in SPEAKING_TOOLS.items()
        ]
        return types.ListToolsResult(tools=[*ours.tools, *added])

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> Any:
        if params.name not in SPEAKING_TOOLS:
            return await called.handler(context, params)
        run, _ = SPEAKING_TOOLS[params.name]
        return types.CallToolResult(content=await run(context, params.arguments or {}))

    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)


def add_prompts(server: McpServer) -> None:
    """The prompts, and completion of their arguments."""

    def asked(*content: types.ContentBlock) -> types.GetPromptResult:
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=part) for part in content])

    def argument(name: str) -> types.PromptArgument:
        return types.PromptArgument(name=name, description=f"The {name}", required=True)

    prompts = {
        "test_simple_prompt": [],
        "test_prompt_with_arguments": [argument("arg1"), argument("arg2")],
        "test_prompt_with_embedded_resource": [argument("resourceUri")],
        "test_prompt_with_image": [],
    }

    async def list_prompts(context: Context, params: types.PaginatedRequestParams) -> types.ListPromptsResult:
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(name=name, description=f"Fixture {name}", arguments=arguments)
                for name, arguments in prompts.items()
            ]
        )

    async def get_prompt(context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        given = params.arguments or {}
        match params.name:
            case "test_simple_prompt":
                return asked(_text("This is a simple prompt for testing."))
            case "test_prompt_with_arguments":
                return asked(_text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"))
            case "test_prompt_with_embedded_resource":
                embedded = _resource(given["resourceUri"], "Embedded resource content for testing.")
                return asked(embedded, _text("Please process the embedded resource above."))
            case _:
                return asked(_image(), _text("Please analyze the image above."))

    async def complete(context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=["paris", "park"], total=2, has_more=False))

    server.add_request_handler("prompts/list", types.PaginatedRequestParams, list_prompts)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, get_prompt)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, complete)


def add_resources(server: McpServer) -> None:
    """The resources, a template, and subscriptions."""
    watched: set[str] = set()

    async def list_resources(context: Context, params: types.PaginatedRequestParams) -> types.ListResourcesResult:
        names = {"test://static-text": "text/plain", "test://static-binary": "image/png"}
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=uri, name=uri, description=f"Fixture {uri}", mime_type=mime_type)
                for uri, mime_type in names.items()
            ]
        )

    async def list_templates(
        context: Context, params: types.PaginatedRequestParams
    ) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(uri_template="test://template/{id}/data", name="template")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        content: types.TextResourceContents | types.BlobResourceContents
        if uri == "test://static-binary":
            content = types.BlobResourceContents(uri=uri, blob=_PIXEL, mime_type="image/png")
        elif uri == "test://static-text":
            text = "This is the content of the static text resource."
            content = types.TextResourceContents(uri=uri, text=text, mime_type="text/plain")
        else:
            name = uri.removeprefix("test://template/").removesuffix("/data")
            text = f'{{"id":"{name}","templateTest":true,"data":"Data for ID: {name}"}}'
            content = types.TextResourceContents(uri=uri, text=text, mime_type="application/json")
        return types.ReadResourceResult(contents=[content])

    async def subscribe(context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        watched.add(str(params.uri))
        return types.EmptyResult()

    async def unsubscribe(context: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        watched.remove(str(params.uri))
        return types.EmptyResult()

    server.add_request_handler("resources/list", types.PaginatedRequestParams, list_resources)
    server.add_request_handler("resources/templates/list", types.PaginatedRequestParams, list_templates)
    server.add_request_handler("resources/read", types.ReadResourceRequestParams, read_resource)
    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)


def add_logging(server: McpServer) -> None:
    """The level clients ask for; the fixtures log at one level only."""

    async def set_level(context: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        return types.EmptyResult()

    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)


def conformance_app() -> McpApp:
    """The whole application. Anyone may call, because the suite has no way to send a key."""
    metrics = Metrics()
    tools = dispatched_tools()
    dispatcher = Dispatcher(
        [("conformance", tool) for tool in tools], metrics=metrics, audit=None, default_deadline_s=30
    )
    server = mcp_server(ServerIdentity("armarium-conformance", "For the conformance suite."), dispatcher, tools)
    for add in (add_tools, add_prompts, add_resources, add_logging):
        add(server)
    gate = Gate(Authenticator((), open_to_anyone=True), loopback_only=True, max_body_bytes=1024 * 1024, metrics=metrics)
    sessions = Sessions(SessionSettings(), metrics)
    return McpApp({"/mcp": server}, gate, sessions, metrics)


async def main() -> None:
    """Serve until told to stop; the address is logged once the server answers."""
    listening = listen("127.0.0.1", 0)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"

    def announce() -> None:
        _log.info("listening", extra={"address": address})

    await serve_http(conformance_app(), listening, grace_s=1, on_ready=announce)


if __name__ == "__main__":
    log_as_json("info")
    anyio.run(main, backend_options={"use_uvloop": True})
