"""The JSON API: finds the tool behind a method and a path, and says its answer or its error in HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus

import anyio
import orjson
from starlette.datastructures import Headers
from starlette.routing import BaseRoute
from starlette.routing import Route as Address
from starlette.types import Receive, Scope, Send

from armarium.foundation.errors import Cancelled, InvalidArgument, NotInGroup
from armarium.foundation.events import Events
from armarium.foundation.routes import Route
from armarium.foundation.schema import Json
from armarium.surfaces.call_record import Outcome
from armarium.surfaces.caller import Caller
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import Gate
from armarium.surfaces.http_errors import Refused, respond, respond_in_pieces
from armarium.surfaces.response_encoder import Packed
from armarium.surfaces.web.arguments import arguments_of
from armarium.surfaces.web.connection import cancel_when_gone
from armarium.surfaces.web.endpoint import Answering, wrong_method
from armarium.surfaces.web.events import EventStreams
from armarium.surfaces.web.openapi import API_ROOT, DESCRIPTION_PATH, described
from armarium.surfaces.web.status import headers_of, status_of

_SURFACE = "api"
_EVENTS_PATH = f"{API_ROOT}/events"
_OUR_OWN = frozenset({DESCRIPTION_PATH, _EVENTS_PATH, f"{_EVENTS_PATH}/ws"})


class JsonApi:
    """The routes of every capability, their description, and the events they tell of."""

    def __init__(
        self, routes: Iterable[tuple[str, Sequence[Route]]], dispatcher: Dispatcher, gate: Gate, events: Events
    ) -> None:
        offered = [(capability, route) for capability, each in routes for route in each]
        called = {tool.name: tool for _, tool in dispatcher.tools}
        paths: dict[str, dict[str, Route]] = {}
        for capability, route in offered:
            path = API_ROOT + route.path_of(capability)
            methods = paths.setdefault(path, {})
            taken = path in _OUR_OWN or route.method in methods
            if taken or called.get(route.tool.name) is not route.tool:
                raise ValueError(f"{route.method} {route.path} of {capability} is taken, or its tool is another's")
            methods[route.method] = route
        self._calls = _CallsUnderWay(dispatcher, gate)
        self._events = EventStreams(_EVENTS_PATH, events, gate)
        description = orjson.dumps(described(offered))
        self.routes: Sequence[BaseRoute] = [
            Address(DESCRIPTION_PATH, _Page(gate, description)),
            *self._events.routes,
            *(Address(path, _Resource(gate, self._calls, methods)) for path, methods in paths.items()),
            Address(API_ROOT, _Nothing(gate)),
            Address(API_ROOT + "/{rest:path}", _Nothing(gate)),
        ]

    def close_streams(self) -> None:
        """Ask those who listen to go."""
        self._events.close()

    def end_calls(self) -> None:
        """Cut short what is still under way; the callers are told."""
        self._calls.end_all()


class _Resource(Answering):
    """One path, with a tool for each of its methods."""

    def __init__(self, gate: Gate, calls: _CallsUnderWay, methods: Mapping[str, Route]) -> None:
        super().__init__(gate)
        self._calls = calls
        self._methods = dict(methods)
        if "GET" in methods:
            self._methods["HEAD"] = methods["GET"]

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        admitted = await self.gate.admit_with_body(scope, receive)
        caller, body = admitted.caller, admitted.body
        route = self._methods.get(scope["method"])
        if route is None:
            raise wrong_method(self._methods)
        if body and route.takes_body:
            _check_media_type(scope)
        outcome = await self._calls.outcome(replace(caller, surface=_SURFACE), route, scope, body, receive)
        if outcome.error is not None:
            status, headers = status_of(outcome.error), headers_of(outcome.error)
            await respond(send, status, _written(outcome.result["structuredContent"]), headers)
        elif route.success == HTTPStatus.NO_CONTENT:
            # Without a length, which HTTP forbids here.
            await send({"type": "http.response.start", "status": HTTPStatus.NO_CONTENT, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            answer = outcome.result["structuredContent"]
            pieces = answer.pieces if isinstance(answer, Packed) else [_written(answer)]
            await respond_in_pieces(send, route.success, pieces)


class _CallsUnderWay:
    """Calls on their way through the dispatcher, for as long as somebody may want them to end."""

    def __init__(self, dispatcher: Dispatcher, gate: Gate) -> None:
        self._dispatcher = dispatcher
        self._gate = gate
        self._running = set[anyio.CancelScope]()

    async def outcome(self, caller: Caller, route: Route, scope: Scope, body: bytes, receive: Receive) -> Outcome:
        """How the call that a request asks for ends."""
        name, in_path = route.tool.name, scope["path_params"]
        if not route.admits(caller.principal):
            denial = NotInGroup("this is for members of certain groups only", hint="ask the operator of the server")
            return self._dispatcher.refuse(caller, name, in_path, denial)
        try:
            arguments = await arguments_of(route, in_path, scope["query_string"], body, self._gate.max_values)
        except InvalidArgument as error:
            return self._dispatcher.refuse(caller, name, in_path, error)
        # The same message as over MCP: a price is asked whatever the way in.
        params: Json = {"name": name, "arguments": arguments}
        await self._gate.check_payment(caller, {"jsonrpc": "2.0", "method": "tools/call", "params": params})
        cut_short = Cancelled("the call was cut short", hint="the server is stopping; try again in a moment")
        errors = route.tool.errors
        outcome = Outcome({"structuredContent": errors.render(errors.translate(cut_short))}, cut_short)
        async with anyio.create_task_group() as tasks:
            self._running.add(tasks.cancel_scope)
            try:
                if route.tool.read_only:
                    # Nobody is left to read the answer. A change is carried through all the same.
                    tasks.start_soon(cancel_when_gone, receive, tasks.cancel_scope)
                outcome = await self._dispatcher.outcome(caller, name, arguments, form="structured")
            finally:
                self._running.discard(tasks.cancel_scope)
            tasks.cancel_scope.cancel()
        return outcome

    def end_all(self) -> None:
        """End every call; each has an outcome all the same."""
        for scope in self._running.copy():
            scope.cancel()


class _Page(Answering):
    """A document that is always the same."""

    def __init__(self, gate: Gate, document: bytes) -> None:
        super().__init__(gate)
        self._document = document

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.gate.admit_reader(scope)
        if scope["method"] not in ("GET", "HEAD"):
            raise wrong_method(("GET", "HEAD"))
        await respond(send, 200, self._document)


class _Nothing(Answering):
    """A path that no capability has."""

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.gate.admit_reader(scope)
        raise Refused(404, f"there is nothing at this path; {DESCRIPTION_PATH} lists what there is")


def _check_media_type(scope: Scope) -> None:
    media_type = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Refused(415, "Content-Type must be application/json", {"accept": "application/json"})


def _written(answer: Json) -> bytes:
    try:
        return orjson.dumps(answer)
    except TypeError:
        # Half characters become "?", and whole numbers may be of any size.
        return json.dumps(answer, ensure_ascii=False, default=str).encode("utf-8", "replace")
