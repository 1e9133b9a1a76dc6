"""The format of responses and errors of the three RAG tools, and the declaration of these tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from armarium import __version__
from armarium.capabilities.gateway.contract import CONTRACT_VERSION, DISCOVER, ERROR_SCHEMA, OUTPUT_SCHEMAS
from armarium.capabilities.gateway.errors import GatewayError
from armarium.foundation.errors import ArmariumError
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call, DeclaredTool, ErrorStyle, ServiceT, as_json_text, declare_tool


def contract_answer(results: Json, meta_data: Json, **more: Any) -> Json:
    """A response in the contract's format; empty values in `more` are omitted."""
    known = {"provider": "armarium", "version": __version__, "contract_version": CONTRACT_VERSION}
    body: Json = {"results": results, "meta_data": {**known, **meta_data}}
    body |= {name: value for name, value in more.items() if value}
    return body | {"contract_version": CONTRACT_VERSION}


def error_as_json(error: ArmariumError) -> Json:
    """An error in the contract's format. `reason` is the original code where the contract has none for it."""
    described: Json = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if isinstance(error, GatewayError) and error.contract_code != error.code:
        described |= {"code": error.contract_code, "reason": error.code}
    more = {"hint": error.hint, "retry_after_ms": error.details.get("retry_after_ms")}
    return described | {name: value for name, value in more.items() if value}


def _render_error(error: ArmariumError) -> Json:
    described = error_as_json(error)
    body = contract_answer({"error": described}, {"error": described["code"]})
    if isinstance(each := error.details.get("errors"), list):
        body["meta_data"]["errors"] = each
    return body


RAG_ERRORS: Final = ErrorStyle(_render_error, ERROR_SCHEMA)


def _text(answer: Json) -> list[str]:
    """The answer for models: files by their names, without their content."""
    if artifacts := answer.get("artifacts"):
        named = [{name: value for name, value in each.items() if name != "b64"} for each in artifacts]
        answer = {**answer, "artifacts": named}
    return as_json_text(answer)


def declare_rag_tool(
    name: str,
    function: Callable[[ServiceT, Call, Any], Awaitable[Json]],
    schemas: Mapping[str, Json],
    **traits: Any,
) -> DeclaredTool[ServiceT]:
    """Declare one of the three tools, for the gateway or for a RAG server."""
    return declare_tool(
        name,
        function,
        input_schema=schemas[name],
        output_schema=OUTPUT_SCHEMAS[name],
        read_only=True,
        idempotent=True,
        is_search=name != DISCOVER,
        subject=("", ""),
        errors=RAG_ERRORS,
        text=_text,
        **traits,
    )
