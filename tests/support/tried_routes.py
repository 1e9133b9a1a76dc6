"""Sends valid and invalid requests generated from an OpenAPI document, and checks the responses against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode, checks

from armarium.surfaces.web.openapi import EVENTS_PATH

CONFORMANCE = (
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
)
MODES = tuple(GenerationMode)


def operations_of(described: Any) -> list[Any]:
    """Every method of every path, except the stream of events, which does not end."""
    operations = [found.ok() for found in described.get_all_operations()]
    return [each for each in operations if each.path != EVENTS_PATH]


def never_fails(context: Any, response: Any, case: Any) -> None:
    """The status is not a server error."""
    assert response.status_code < 500, f"{response.status_code}: {response.text[:1000]}"


def try_operation(
    operation: Any,
    mode: GenerationMode,
    *,
    fault: Callable[[Any, Any, Any], None] = never_fails,
    prepare: Callable[[Any], None] = lambda case: None,
    examples: int = 20,
    also: Sequence[Any] = (),
    **request: Any,
) -> None:
    """Send generated requests, valid or invalid ones; `prepare` may change each of them."""

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode))
    def answered(case: Any) -> None:
        prepare(case)
        case.call_and_validate(checks=[fault, *CONFORMANCE, *also], **request)

    answered()
