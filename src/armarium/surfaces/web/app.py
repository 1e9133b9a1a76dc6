"""The JSON API: calls the tool of a method and path, and sends its answer or error as an HTTP response."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from urllib.parse import parse_qs

import anyio
import orjson
from starlette.datastructures import Headers
from starlette.routing import BaseRoute
from starlette.routing import Route as HttpRoute
from starlette.types import Receive, Scope, Send

from armarium.foundation.errors import InvalidArgument
from armarium.foundation.events import Events
from armarium.foundation.routes import FOR_SAVING, Route
from armarium.foundation.schema import Json
from armarium.foundation.security.access import not_in_group
from armarium.foundation.security.identity import Principal
from armarium.foundation.tools import Emit, emit_nothing
from armarium.surfaces.call_record import Outcome
from armarium.surfaces.caller import Caller
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import Gate
from armarium.surfaces.http.responses import HttpError, respond, respond_in_pieces
from armarium.surfaces.json.encoder import EncodedJson
from armarium.surfaces.json.text import dumps
from armarium.surfaces.web.answer_stream import AnswerStream
from armarium.surfaces.web.arguments import arguments_of
from armarium.surfaces.web.endpoint import ApiEndpoint, headers_of, method_not_allowed, status_of
from armarium.surfaces.web.events import EventStreams, StreamLimits
from armarium.surfaces.web.file_tools import FileTools
from armarium.surfaces.web.openapi import API_ROOT, DESCRIPTION_PATH, EVENT_STREAM, EVENTS_PATH, openapi_document
from armarium.surfaces.web.raw import RawEndpoint
from armarium.surfaces.web.running_calls import RunningCalls

_SURFACE = "api"
_OWN_PATHS = frozenset({DESCRIPTION_PATH, EVENTS_PATH, f"{EVENTS_PATH}/ws"})


class JsonApi:
    """The routes of all capabilities, their OpenAPI document and the event streams."""

    def __init__(
        self,
        routes: Iterable[tuple[str, Sequence[Route]]],
        dispatcher: Dispatcher,
        gate: Gate,
        events: Events,
        *,
        stream_limits: StreamLimits | None = None,
        operations: Mapping[str, Json] | None = None,
        file_tools: FileTools | None = None,
        sees_calls_of: Callable[[Principal, str], bool] = lambda principal, apikey_hash: False,
    ) -> None:
        """`operations` are those of the OpenAPI document that others serve, by path. `sees_calls_of` tells
        whether a caller receives the events about the calls of a key."""
        offered = [(capability, route) for capability, each in routes for route in each]
        called = {tool.name: tool for _, tool in dispatcher.tools}
        paths: dict[str, dict[str, Route]] = {}
        for capability, route in offered:
            path = API_ROOT + route.path_of(capability)
            methods = paths.setdefault(path, {})
            taken = path in _OWN_PATHS or route.method in methods
            if taken or called.get(route.tool.name) is not route.tool:
                raise ValueError(f"{route.method} {route.path} of {capability} is taken, or has no tool of its own")
            methods[route.method] = route
        self._dispatcher = dispatcher
        self._gate = gate
        self._calls = RunningCalls(dispatcher, gate)
        raw: RawEndpoint | None = None
        if file_tools is not None and file_tools.raw_files:
            raw = RawEndpoint(file_tools.raw_files, file_tools.tickets, dispatcher, gate, self._calls)
        self._events = EventStreams(
            *(EVENTS_PATH, events, gate, stream_limits),
            may_read=dispatcher.may_read,
            sees_calls_of=sees_calls_of,
        )
        dispatcher.on_call(self._events.offer_call)
        further = {**(operations or {}), **(raw.operations if raw is not None else {})}
        self._description = orjson.dumps(openapi_document(offered, further))
        not_found = ApiEndpoint(gate, self._not_found)
        self.routes: Sequence[BaseRoute] = [
            HttpRoute(DESCRIPTION_PATH, ApiEndpoint(gate, self._describe)),
            *self._events.routes,
            *(raw.routes if raw is not None else ()),
            *(HttpRoute(path, ApiEndpoint(gate, partial(self._serve, each))) for path, each in paths.items()),
            HttpRoute(API_ROOT, not_found),
            HttpRoute(API_ROOT + "/{rest:path}", not_found),
        ]

    def close_streams(self) -> None:
        """End the event streams."""
        self._events.close()

    def end_calls(self) -> None:
        """Cancel the calls in progress; their callers get an error."""
        self._calls.end()

    async def _describe(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._gate.admit_reader(scope)
        if scope["method"] not in ("GET", "HEAD"):
            raise method_not_allowed(("GET", "HEAD"))
        await respond(send, 200, self._description)

    async def _not_found(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._gate.admit_reader(scope)
        raise HttpError(404, f"there is nothing at this path; {DESCRIPTION_PATH} lists what there is")

    async def _serve(self, methods: Mapping[str, Route], scope: Scope, receive: Receive, send: Send) -> None:
        route = methods.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if route is not None and route.identify is not None:
            admitted = await self._gate.admit_link(scope, route.identify(scope["path_params"]["name"], _token(scope)))
        else:
            admitted = await self._gate.admit_with_body(scope, receive)
        if route is None:
            raise method_not_allowed([*methods, "HEAD"] if "GET" in methods else methods)
        media_type = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
        takes_json = route.takes_body and route.raw_body is None
        if admitted.body and takes_json and media_type != "application/json":
            raise HttpError(415, "Content-Type must be application/json", {"accept": "application/json"})
        caller = admitted.caller
        if caller.surface == "http":
            caller = replace(caller, surface=_SURFACE)
        if route.streams and _wants_stream(scope):
            await self._stream(caller, route, scope, admitted.body, receive, send)
            return
        outcome = await self._outcome(caller, route, scope, admitted.body, receive)
        await self._respond(send, route, outcome)

    async def _respond(self, send: Send, route: Route, outcome: Outcome) -> None:
        if outcome.error is not None:
            status, headers = status_of(outcome.error), headers_of(outcome.error)
            await respond(send, status, dumps(outcome.result["structuredContent"]), headers)
        elif route.is_file:
            await _respond_with_file(send, outcome.result["structuredContent"], route.media_type)
        elif route.success == HTTPStatus.NO_CONTENT:
            # HTTP forbids a content length here.
            await send({"type": "http.response.start", "status": HTTPStatus.NO_CONTENT, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            answer = outcome.result["structuredContent"]
            pieces = answer.pieces if isinstance(answer, EncodedJson) else [dumps(answer)]
            await respond_in_pieces(send, route.success, pieces)

    async def _stream(
        self, caller: Caller, route: Route, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Send what the call emits as events, and its outcome as the last one. A call that fails before it emits
        anything is answered like any other."""
        stream = AnswerStream(send)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.forward)
            outcome = await self._outcome(caller, route, scope, body, receive, stream.emit)
            if outcome.error is None or stream.has_begun:
                stream.end("done" if outcome.error is None else "error", outcome.result["structuredContent"])
            else:
                tasks.cancel_scope.cancel()
                await self._respond(send, route, outcome)

    async def _outcome(
        self, caller: Caller, route: Route, scope: Scope, body: bytes, receive: Receive, emit: Emit = emit_nothing
    ) -> Outcome:
        """Run the call of a request. If it is cancelled, it still has an outcome."""
        name, in_path = route.tool.name, scope["path_params"]
        if not route.admits(caller.principal):
            return self._dispatcher.reject(caller, name, in_path, not_in_group())
        try:
            arguments = await arguments_of(route, in_path, scope["query_string"], body, self._gate.max_values)
        except InvalidArgument as error:
            return self._dispatcher.reject(caller, name, in_path, error)
        # Nobody would read the answer. A call that changes something is completed, unless it is followed: such calls
        # take long, and keep what they have when they are cancelled.
        abandoned = receive if route.tool.read_only or emit is not emit_nothing else None
        form = "plain" if route.is_file else "structured"
        return await self._calls.outcome(caller, route.tool, arguments, form=form, abandoned=abandoned, emit=emit)


def _wants_stream(scope: Scope) -> bool:
    """Whether the client takes events and not JSON. MCP clients name both."""
    accepted = Headers(scope=scope).get("accept", "")
    return EVENT_STREAM in accepted and "application/json" not in accepted


def _token(scope: Scope) -> str:
    return parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]


async def _respond_with_file(send: Send, file: Json, media_type: str) -> None:
    """Send a file. No browser may run it as a page of this server."""
    headers = {"content-type": media_type, "content-security-policy": "sandbox"}
    if media_type == FOR_SAVING:
        headers["content-disposition"] = f'attachment; filename="{file["name"]}"'
    await respond(send, 200, base64.b64decode(file["b64"]), headers)
