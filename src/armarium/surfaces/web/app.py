"""The JSON API: calls the tool of a method and path, and sends its answer or error as an HTTP response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from armarium.surfaces.call_record import Outcome
from armarium.surfaces.caller import Caller
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import Gate
from armarium.surfaces.http_errors import HttpError
from armarium.surfaces.http_responses import cancel_on_disconnect, respond, respond_in_pieces
from armarium.surfaces.json_text import dumps
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
        self._dispatcher = dispatcher
        self._gate = gate
        self._running = set[anyio.CancelScope]()
        self._events = EventStreams(_EVENTS_PATH, events, gate, stream_limits)
        self._description = orjson.dumps(openapi_document(offered))
        not_found = ApiEndpoint(gate, self._not_found)
        self.routes: Sequence[BaseRoute] = [
            HttpRoute(DESCRIPTION_PATH, ApiEndpoint(gate, self._describe)),
            *self._events.routes,
            *(HttpRoute(path, ApiEndpoint(gate, partial(self._serve, each))) for path, each in paths.items()),
            HttpRoute(API_ROOT, not_found),
            HttpRoute(API_ROOT + "/{rest:path}", not_found),
        ]

    def close_streams(self) -> None:
        """End the event streams."""
        self._events.close()

    def end_calls(self) -> None:
        """Cancel the calls in progress; their callers get an error."""
        for scope in self._running.copy():
            scope.cancel()

    async def _describe(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._gate.admit_reader(scope)
        if scope["method"] not in ("GET", "HEAD"):
            raise method_not_allowed(("GET", "HEAD"))
        await respond(send, 200, self._description)

    async def _not_found(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._gate.admit_reader(scope)
        raise HttpError(404, f"there is nothing at this path; {DESCRIPTION_PATH} lists what there is")

    async def _serve(self, methods: Mapping[str, Route], scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one path, with a route for each of its methods."""
        admitted = await self._gate.admit_with_body(scope, receive)
        route = methods.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if route is None:
            raise method_not_allowed([*methods, "HEAD"] if "GET" in methods else methods)
        media_type = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
        if admitted.body and route.takes_body and media_type != "application/json":
            raise HttpError(415, "Content-Type must be application/json", {"accept": "application/json"})
        outcome = await self._outcome(replace(admitted.caller, surface=_SURFACE), route, scope, admitted.body, receive)
        if outcome.error is not None:
            status, headers = status_of(outcome.error), headers_of(outcome.error)
            await respond(send, status, dumps(outcome.result["structuredContent"]), headers)
        elif route.success == HTTPStatus.NO_CONTENT:
            # HTTP forbids a content length here.
            await send({"type": "http.response.start", "status": HTTPStatus.NO_CONTENT, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            answer = outcome.result["structuredContent"]
            pieces = answer.pieces if isinstance(answer, EncodedJson) else [dumps(answer)]
            await respond_in_pieces(send, route.success, pieces)

    async def _outcome(self, caller: Caller, route: Route, scope: Scope, body: bytes, receive: Receive) -> Outcome:
        """Run the call of a request. If it is cancelled, it still has an outcome."""
        name, in_path = route.tool.name, scope["path_params"]
        if not route.admits(caller.principal):
            denial = NotInGroup(
                "this is for members of certain groups only",
                hint="ask the operator for a key in one of them (`armarium keys add NAME --group GROUP`)",
            )
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
