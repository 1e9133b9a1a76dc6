"""Errors that end an HTTP request before it becomes a call."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

from mcp_types import INVALID_REQUEST

from armarium.foundation.schema import Json


@dataclass(eq=False)
class HttpError(Exception):
    """The request is rejected with this status."""

    status: int
    message: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    _: KW_ONLY
    code: int = INVALID_REQUEST
    """The JSON-RPC error code. One code stands for most kinds of invalid requests."""
    reason: str | None = None
    """A stable code for programs."""
    details: Json = field(default_factory=Json)
    """Further facts for programs. They are sent only with a reason."""
    retryable: bool = False
    """Whether the same request can succeed later."""


def json_rpc_error(error: HttpError) -> Json:
    """The error as a JSON-RPC response. Its id is null: the request was not read."""
    body: Json = {"code": error.code, "message": error.message}
    if error.reason is not None:
        body["data"] = {"code": error.reason, "retryable": error.retryable, **error.details}
    return {"jsonrpc": "2.0", "id": None, "error": body}
