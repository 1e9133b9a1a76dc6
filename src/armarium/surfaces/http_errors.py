"""Errors that end an HTTP request before it becomes a call."""

from __future__ import annotations

from mcp_types import INVALID_REQUEST

from armarium.foundation.schema import Json


class HttpError(Exception):
    """The request is rejected with this status."""

    def __init__(
        self,
        status: int,
        message: str,
        headers: dict[str, str] | None = None,
        *,
        code: int = INVALID_REQUEST,
        reason: str | None = None,
        details: Json | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}
        self.code = code
        """The JSON-RPC error code. One code stands for most kinds of invalid requests."""
        self.reason = reason
        """A stable code for programs."""
        self.details = details or {}
        """Further facts for programs. They are sent only with a reason."""
        self.retryable = retryable
        """Whether the same request can succeed later."""


def json_rpc_error(error: HttpError) -> Json:
    """The error as a JSON-RPC response. Its id is null: the request was not read."""
    body: Json = {"code": error.code, "message": error.message}
    if error.reason is not None:
        body["data"] = {"code": error.reason, "retryable": error.retryable, **error.details}
    return {"jsonrpc": "2.0", "id": None, "error": body}
