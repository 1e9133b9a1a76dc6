"""What a vendor's refusal means: its status, its headers and the various shapes of its body, as one of our errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import orjson

from armarium.providers.errors import ProviderError
from armarium.providers.retry import retry_after_s
from armarium.providers.vendors import Vendor

_EXCERPT_CHARS = 200
_RATE_LIMIT_KINDS = {"rate_limited", "rate_limit_error", "rate_limit_exceeded"}

_Kind = Literal["rate_limited", "insufficient_quota", ""]


def refusal(
    vendor: Vendor, status: int, headers: Mapping[str, str], body: bytes, *, key: str | None, wall: float
) -> ProviderError:
    """The error for an answer whose status is not 200. What the vendor wrote is for the operator only."""
    try:
        said, kind = _said(orjson.loads(body))
    except orjson.JSONDecodeError:
        said, kind = body.decode("utf-8", "replace"), ""
    private = {"status": status, "said": _excerpt(said, key)}
    wait_s = retry_after_s(headers.get("retry-after"), wall)
    asked_to_wait = {} if wait_s is None else {"retry_after_s": wait_s}
    if status in (401, 403, 498):
        return vendor.auth(
            f"{vendor.name} does not accept the API key", hint="check the key and what it may use", private=private
        )
    if kind == "insufficient_quota":
        # Sent with status 429, but waiting does not bring money.
        return vendor.failed(f"the account at {vendor.name} has no quota left", hint="check its plan", private=private)
    if status == 429 or kind == "rate_limited":
        return vendor.rate_limited(
            f"{vendor.name} wants fewer requests", hint="retry in a moment", private=private, **asked_to_wait
        )
    if status in (408, 425) or status >= 500:
        return vendor.unavailable(
            f"{vendor.name} failed with status {status}", hint="retry in a moment", private=private, **asked_to_wait
        )
    hint = "check the base URL" if status < 400 or status in (404, 405) else "check the model's name and limits"
    return vendor.failed(f"{vendor.name} refused the request with status {status}", hint=hint, private=private)


def refusal_in_stream(vendor: Vendor, event: Mapping[str, Any], *, key: str | None) -> ProviderError | None:
    """The error that an event of a stream stands for, which began with status 200; None for any other event."""
    if event.get("object") != "error" and not event.get("error"):
        return None
    said, kind = _said(event)
    private = {"said": _excerpt(said, key)}
    if kind == "rate_limited":
        return vendor.rate_limited(f"{vendor.name} wants fewer requests", hint="retry in a moment", private=private)
    return vendor.unavailable(f"{vendor.name} failed in the middle of its answer", private=private)


def _excerpt(said: str, key: str | None) -> str:
    # Some vendors repeat the key they do not accept.
    return (said.replace(key, "[key]") if key else said)[:_EXCERPT_CHARS]


def _said(answer: object) -> tuple[str, _Kind]:
    """The message and the kind of error that a body tells.

    Seen: `{"object": "error", "message", "type", "code"}`, `{"message"}`, `{"detail": text or list}`,
    `{"error": {"message", "type", "code"}}`, `{"error": text}`, and pages of proxies.
    """
    if not isinstance(answer, dict):
        return str(answer), ""
    error = cast("dict[str, Any]", answer)
    if isinstance(error.get("error"), dict):
        error = cast("dict[str, Any]", error["error"])
    said = next((error[name] for name in ("message", "detail", "error") if error.get(name)), "")
    kinds = {str(error.get(name)) for name in ("code", "type")}
    if "insufficient_quota" in kinds:
        return str(said), "insufficient_quota"
    return str(said), "rate_limited" if kinds & _RATE_LIMIT_KINDS else ""
