"""The JSON API: calls the tool of a method and path, and sends its answer or error as an HTTP response."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus

import anyio
import orjson
from starlette.datastructures import Headers
from starlette.routing import BaseRoute
from starlette.routing import Route as HttpRoute
from starlette.types import Receive, Scope, Send

from armarium.foundation.errors import Cancelled, InvalidArgument, NotInGroup
from armarium.foundation.events import Events
from armarium.foundation.routes import Route
from armarium.foundation.schema import Json
from armarium.surfaces.call_record import Outcome
from armarium.surfaces.caller import Caller
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import Gate
from armarium.surfaces.http_errors import HttpError
from armarium.surfaces.http_responses import cancel_on_disconnect, respond, respond_in_pieces
from armarium.surfaces.response_encoder import EncodedJson
from armarium.surfaces.web.arguments import arguments_of
from armarium.surfaces.web.endpoint import ApiEndpoint, headers_of, method_not_allowed, status_of
from armarium.surfaces.web.events import EventStreams, StreamLimits
from armarium.surfaces.web.openapi import API_ROOT, DESCRIPTION_PATH, openapi_document

_SURFACE = "api"
_EVENTS_PATH = f"{API_ROOT}/events"
_OWN_PATHS = frozenset({DESCRIPTION_PATH, _EVENTS_PATH, f"{_EVENTS_PATH}/ws"})


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
    ) -> None:
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
        self._calls = _PendingCalls(dispatcher, gate)
        self._events = EventStreams(_EVENTS_PATH, events, gate, stream_limits)
        description = orjson.dumps(openapi_document(offered))
        self.routes: Sequence[BaseRoute] = [
            HttpRoute(DESCRIPTION_PATH, _Document(gate, description)),
            *self._events.routes,
            *(HttpRoute(path, _Resource(gate, self._calls, methods)) for path, methods in paths.items()),
            HttpRoute(API_ROOT, _NotFound(gate)),
            HttpRoute(API_ROOT + "/{rest:path}", _NotFound(gate)),
        ]

    def close_streams(self) -> None:
        """End the event streams."""
        self._events.close()

    def end_calls(self) -> None:
        """Cancel the calls in progress; their callers get an error."""
        self._calls.end_all()


class _Resource(ApiEndpoint):
    """One path, with a tool for each of its methods."""

    def __init__(self, gate: Gate, calls: _PendingCalls, methods: Mapping[str, Route]) -> None:
        super().__init__(gate)
        self._calls = calls
        self._methods = dict(methods)
        if "GET" in methods:
            self._methods["HEAD"] = methods["GET"]

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        admitted = await self.gate.admit_with_body(scope, receive)
        caller, body = admitted.caller, admitted.body
        route = self._methods.get(scope["method"])
        if route is None:
            raise method_not_allowed(self._methods)
        if body and route.takes_body:
            _check_media_type(scope)
        outcome = await self._calls.outcome(replace(caller, surface=_SURFACE), route, scope, body, receive)
        if outcome.error is not None:
            status, headers = status_of(outcome.error), headers_of(outcome.error)
            await respond(send, status, _encode(outcome.result["structuredContent"]), headers)
        elif route.success == HTTPStatus.NO_CONTENT:
            # HTTP forbids a content length here.
            await send({"type": "http.response.start", "status": HTTPStatus.NO_CONTENT, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            answer = outcome.result["structuredContent"]
            pieces = answer.pieces if isinstance(answer, EncodedJson) else [_encode(answer)]
            await respond_in_pieces(send, route.success, pieces)


class _PendingCalls:
    """The calls in progress, so that a shutdown can cancel them."""

    def __init__(self, dispatcher: Dispatcher, gate: Gate) -> None:
        self._dispatcher = dispatcher
        self._gate = gate
        self._running = set[anyio.CancelScope]()

    async def outcome(self, caller: Caller, route: Route, scope: Scope, body: bytes, receive: Receive) -> Outcome:
        """Run the call of a request."""
        name, in_path = route.tool.name, scope["path_params"]
        if not route.admits(caller.principal):
            denial = NotInGroup("this is for members of certain groups only", hint="ask the operator of the server")
            return self._dispatcher.reject(caller, name, in_path, denial)
        try:
            arguments = await arguments_of(route, in_path, scope["query_string"], body, self._gate.max_values)
        except InvalidArgument as error:
            return self._dispatcher.reject(caller, name, in_path, error)
        cancelled = Cancelled("the call was cut short", hint="the server is stopping; try again in a moment")
        errors = route.tool.errors
        outcome = Outcome({"structuredContent": errors.render(errors.translate(cancelled))}, cancelled)
        async with anyio.create_task_group() as tasks:
            self._running.add(tasks.cancel_scope)
            try:
                if route.tool.read_only:
                    # Nobody would read the answer. A call that changes something is completed.
                    tasks.start_soon(cancel_on_disconnect, receive, tasks.cancel_scope)
                outcome = await self._dispatcher.outcome(caller, name, arguments, form="structured")
            finally:
                self._running.discard(tasks.cancel_scope)
            tasks.cancel_scope.cancel()
        return outcome

    def end_all(self) -> None:
        """Cancel every call. Each still has an outcome."""
        for scope in self._running.copy():
            scope.cancel()


class _Document(ApiEndpoint):
    """A constant JSON document."""

    def __init__(self, gate: Gate, document: bytes) -> None:
        super().__init__(gate)
        self._document = document

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.gate.admit_reader(scope)
        if scope["method"] not in ("GET", "HEAD"):
            raise method_not_allowed(("GET", "HEAD"))
        await respond(send, 200, self._document)


class _NotFound(ApiEndpoint):
    """A path without a route."""

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.gate.admit_reader(scope)
        raise HttpError(404, f"there is nothing at this path; {DESCRIPTION_PATH} lists what there is")


def _check_media_type(scope: Scope) -> None:
    media_type = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HttpError(415, "Content-Type must be application/json", {"accept": "application/json"})


def _encode(answer: Json) -> bytes:
    try:
        return orjson.dumps(answer)
    except TypeError:
        # Unpaired surrogates become "?", and integers may have any size.
        return json.dumps(answer, ensure_ascii=False, default=str).encode("utf-8", "replace")
