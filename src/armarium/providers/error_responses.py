"""Maps the error responses of providers, by status, headers and body, to Armarium's errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import orjson

from armarium.providers.errors import ProviderError
from armarium.providers.retry import parse_retry_after
from armarium.providers.vendors import Vendor

_EXCERPT_CHARS = 200
_RATE_LIMIT_KINDS = {"rate_limited", "rate_limit_error", "rate_limit_exceeded"}

_Kind = Literal["rate_limited", "insufficient_quota", ""]


def error_from_response(
    vendor: Vendor, status: int, headers: Mapping[str, str], body: bytes, *, key: str | None, wall: float
) -> ProviderError:
    """The error for a response whose status is not 200. The provider's own message is in the log only."""
    try:
        message, kind = _message_and_kind(orjson.loads(body))
    except orjson.JSONDecodeError:
        message, kind = body.decode("utf-8", "replace"), ""
    private = {"status": status, "said": _excerpt(message, key)}
    delay_s = parse_retry_after(headers.get("retry-after"), wall)
    retry_after = {} if delay_s is None else {"retry_after_s": delay_s}
    if status in (401, 403, 498):
        return vendor.auth(
            f"{vendor.name} rejected the API key", hint="check the key and its permissions", private=private
        )
    if kind == "insufficient_quota":
        # Sent with status 429, but a retry does not help.
        return vendor.failed(f"the account at {vendor.name} has no quota left", hint="check its plan", private=private)
    if status == 429 or kind == "rate_limited":
        return vendor.rate_limited(
            f"the rate limit of {vendor.name} is exceeded", hint="retry in a moment", private=private, **retry_after
        )
    if status in (408, 425) or status >= 500:
        return vendor.unavailable(
            f"{vendor.name} failed with status {status}", hint="retry in a moment", private=private, **retry_after
        )
    hint = "check the base URL" if status < 400 or status in (404, 405) else "check the model's name and limits"
    return vendor.failed(f"{vendor.name} rejected the request with status {status}", hint=hint, private=private)


def error_from_event(vendor: Vendor, event: Mapping[str, Any], *, key: str | None) -> ProviderError | None:
    """The error in an event of a stream that started with status 200; None for other events."""
    if event.get("object") != "error" and not event.get("error"):
        return None
    message, kind = _message_and_kind(event)
    private = {"said": _excerpt(message, key)}
    if kind == "rate_limited":
        return vendor.rate_limited(
            f"the rate limit of {vendor.name} is exceeded", hint="retry in a moment", private=private
        )
    return vendor.unavailable(f"{vendor.name} failed in the middle of its response", private=private)


def _excerpt(message: str, key: str | None) -> str:
    # Some providers repeat the key that they reject.
    return (message.replace(key, "[key]") if key else message)[:_EXCERPT_CHARS]


def _message_and_kind(body: object) -> tuple[str, _Kind]:
    """The message and the kind of error in a response body.

    Known forms: `{"object": "error", "message", "type", "code"}`, `{"message"}`, `{"detail": text or list}`,
    `{"error": {"message", "type", "code"}}`, `{"error": text}`, and the pages of proxies.
    """
    if not isinstance(body, dict):
        return str(body), ""
    error = cast("dict[str, Any]", body)
    if isinstance(error.get("error"), dict):
        error = cast("dict[str, Any]", error["error"])
    message = next((error[name] for name in ("message", "detail", "error") if error.get(name)), "")
    kinds = {str(error.get(name)) for name in ("code", "type")}
    if "insufficient_quota" in kinds:
        return str(message), "insufficient_quota"
    return str(message), "rate_limited" if kinds & _RATE_LIMIT_KINDS else ""
