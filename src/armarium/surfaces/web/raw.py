"""`/api/raw`: the bytes of files, by reference or by ticket. Each request is a call of a tool that streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import anyio
from starlette.datastructures import Headers
from starlette.routing import BaseRoute
from starlette.routing import Route as HttpRoute
from starlette.types import Message, Receive, Scope, Send

from armarium.foundation.byte_transfers import ByteSource, RangeNotSatisfiable, TransferEnded
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.refs import FileRef
from armarium.foundation.routes import RawFiles, Route
from armarium.foundation.schema import Json
from armarium.foundation.tools import ToolSpec
from armarium.surfaces.caller import Caller
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import Gate
from armarium.surfaces.http.responses import SEND_TIMEOUT_S, HttpError, respond
from armarium.surfaces.json.text import dumps
from armarium.surfaces.web.arguments import arguments_in_query, fields_of
from armarium.surfaces.web.endpoint import ApiEndpoint, headers_of, method_not_allowed, status_of
from armarium.surfaces.web.file_headers import headers_of_file, is_known, requested_range
from armarium.surfaces.web.openapi import API_ROOT
from armarium.surfaces.web.raw_openapi import raw_operations, ticket_operation
from armarium.surfaces.web.running_calls import RunningCalls
from armarium.surfaces.web.tickets import Tickets

RAW_PATH: Final = f"{API_ROOT}/raw"
_TICKET_PATH: Final = RAW_PATH + "/{ticket}/{name}"
_SURFACE: Final = "api"
_BLOCK_BYTES: Final = 256 * 1024
_RECEIVE_TIMEOUT_S: Final = 30.0
"""How long a client may send nothing of an upload."""


def operations_of(files: Sequence[RawFiles]) -> Mapping[str, Json]:
    """The operations that serve these files in the OpenAPI document, by path."""
    routes = [_route_of(each, tool) for each in files for tool in each.tools]
    return {RAW_PATH: raw_operations(routes), _TICKET_PATH: ticket_operation()}


class RawEndpoint:
    """The endpoints for the bytes of the files of all capabilities."""

    def __init__(
        self, files: Sequence[RawFiles], tickets: Tickets, dispatcher: Dispatcher, gate: Gate, calls: RunningCalls
    ) -> None:
        self._files = {each.scheme: each for each in files}
        self._routes = {tool.name: _route_of(each, tool) for each in files for tool in each.tools}
        self._tickets, self._dispatcher, self._gate, self._calls = tickets, dispatcher, gate, calls
        self.operations = operations_of(files)
        """The operations in the OpenAPI document, by path."""
        self.routes: Sequence[BaseRoute] = [
            HttpRoute(RAW_PATH, ApiEndpoint(gate, self._serve)),
            HttpRoute(_TICKET_PATH, ApiEndpoint(gate, self._serve_ticket)),
        ]

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A file that its reference names."""
        caller = await self._gate.admit_reader(scope)
        if scope["method"] not in ("GET", "HEAD", "PUT"):
            raise method_not_allowed(("GET", "HEAD", "PUT"))
        await self._transfer(caller, scope["query_string"], scope, receive, send)

    async def _serve_ticket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A file that an element of a page shows. The ticket counts for the session that it was made for only."""
        ticket = self._tickets.find(scope["path_params"]["ticket"])
        caller = await self._gate.admit_element(scope, ticket.session if ticket is not None else None)
        if scope["method"] not in ("GET", "HEAD"):
            raise method_not_allowed(("GET", "HEAD"))
        if ticket is None or (ticket.principal, ticket.session) != (caller.principal, caller.session):
            raise HttpError(410, "the ticket is invalid or has expired", reason="TICKET_EXPIRED")
        await self._transfer(caller, ticket.query, scope, receive, send)

    async def _transfer(self, caller: Caller, query: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the tool that sends or receives the file of a query."""
        if caller.surface == "http":
            caller = replace(caller, surface=_SURFACE)
        with _bad_request():
            fields = fields_of(query)
            files, ref = self._named(fields.pop("ref", []))
            as_attachment = _flag(fields.pop("download", ["0"]))
        is_upload = scope["method"] == "PUT"
        tool = files.receive if is_upload else files.send
        if tool is None:
            raise HttpError(405, f"files of {files.scheme}:// are not uploaded", {"allow": "GET, HEAD"})
        transfer = _Transfer(scope, receive, send, as_attachment=as_attachment)
        named = files.arguments(ref)
        try:
            arguments = arguments_in_query(self._routes[tool.name], named, fields)
        except InvalidArgument as error:
            outcome = self._dispatcher.reject(caller, tool.name, named, error)
        else:
            # The body of an upload tells whether its client is there.
            abandoned = None if is_upload else receive
            outcome = await self._calls.outcome(caller, tool, arguments, abandoned=abandoned, transfer=transfer)
        if transfer.has_responded:
            # If it is not complete, the server closes the connection, so that nobody takes it for the whole file.
            return
        answer: Json = outcome.result["structuredContent"]
        if outcome.error is None:
            await respond(send, 201 if answer.get("created") else 200, dumps(answer))
            return
        headers = headers_of(outcome.error)
        if isinstance(outcome.error, RangeNotSatisfiable):
            headers["content-range"] = f"bytes */{outcome.error.details['size']}"
        if is_upload:
            headers["connection"] = "close"
        await respond(send, status_of(outcome.error), dumps(answer), headers)

    def _named(self, given: Sequence[str]) -> tuple[RawFiles, FileRef]:
        ref = FileRef.parse(given[0]) if len(given) == 1 else None
        files = self._files.get(ref.scheme) if ref is not None else None
        if ref is None or files is None:
            known = " or ".join(f"{scheme}://…" for scheme in self._files)
            raise InvalidArgument(f"`ref` must be one reference to a file, {known}")
        return files, ref


class _Transfer:
    """The bytes of one request and its response."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, as_attachment: bool) -> None:
        self._headers = Headers(scope=scope)
        self._is_head = scope["method"] == "HEAD"
        self._receive, self._send = receive, send
        self._as_attachment = as_attachment
        self.has_responded = False
        self.received = self.sent = 0

    @property
    def length(self) -> int | None:
        given = self._headers.get("content-length", "")
        return int(given) if given.isdigit() else None

    async def blocks(self) -> AsyncIterator[bytes]:
        block, more = bytearray(), True
        while more:
            event: Message = {"type": "http.disconnect"}
            with anyio.move_on_after(_RECEIVE_TIMEOUT_S):
                event = await self._receive()
            if event["type"] == "http.disconnect":
                raise TransferEnded("the upload ended before its last byte; nothing was changed", hint="send it again")
            block += (part := event.get("body", b""))
            self.received += len(part)
            more = event.get("more_body", False)
            if len(block) >= _BLOCK_BYTES or (block and not more):
                yield bytes(block)
                block.clear()

    async def send(self, source: ByteSource) -> int:
        headers = headers_of_file(source, as_attachment=self._as_attachment)
        if (known := self._headers.get("if-none-match")) is not None and is_known(source, known):
            await self._start(304, {name: headers[name] for name in ("etag", "cache-control")})
            await self._send({"type": "http.response.body", "body": b""})
            return 0
        wanted = None if self._is_head else self._headers.get("range")
        part = requested_range(source, wanted, self._headers.get("if-range"))
        offset, end = part or (0, source.size)
        headers["content-length"] = str(end - offset)
        if part is not None:
            headers["content-range"] = f"bytes {offset}-{end - 1}/{source.size}"
        # The first block comes before the status: what cannot be read is an error, not an empty file.
        block = b"" if self._is_head else await self._block(source, offset, end)
        await self._start(200 if part is None else 206, headers)
        while block:
            offset += len(block)
            await self._send_block(block, is_last=offset == end)
            self.sent += len(block)
            block = await self._block(source, offset, end)
        if not self.sent:
            await self._send({"type": "http.response.body", "body": b""})
        return self.sent

    async def _block(self, source: ByteSource, offset: int, end: int) -> bytes:
        return await source.read(offset, min(_BLOCK_BYTES, end - offset)) if offset < end else b""

    async def _send_block(self, block: bytes, *, is_last: bool) -> None:
        with anyio.move_on_after(SEND_TIMEOUT_S) as timeout:
            await self._send({"type": "http.response.body", "body": block, "more_body": not is_last})
        if timeout.cancelled_caught:
            raise TransferEnded("the client stopped reading")

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self.has_responded = True
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})


def _route_of(files: RawFiles, tool: ToolSpec) -> Route:
    """Where a request has the arguments of the tool: those of the reference are in place of a path."""
    in_path = files.arguments(FileRef(files.scheme, "space", "path"))
    path = "/raw" + "".join(f"/{{{name}}}" for name in in_path)
    others = frozenset(tool.input_schema.get("properties", ())) - in_path.keys()
    if tool is files.receive:
        return Route("PUT", path, tool, "Upload a file", query=others)
    return Route("GET", path, tool, "Download a file")


@contextmanager
def _bad_request() -> Generator[None]:
    """Reject a request that names no file, and so never becomes a call."""
    try:
        yield
    except InvalidArgument as error:
        raise HttpError(400, error.message, reason=InvalidArgument.code) from None


def _flag(given: Sequence[str]) -> bool:
    if given[-1] not in ("0", "1"):
        raise InvalidArgument("`download` must be 0 or 1")
    return given[-1] == "1"
