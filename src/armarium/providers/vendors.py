"""The vendors we know: where each is reached, with which key, and what each way of failing is called there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from armarium.foundation.errors import ConfigError
from armarium.providers import errors


@dataclass(frozen=True, slots=True)
class Vendor:
    """Whoever answers: a company, or anybody who speaks as it does."""

    name: str
    url: str
    """Where requests go unless another base URL is configured."""
    auth: type[errors.ProviderAuth]
    rate_limited: type[errors.ProviderRateLimited]
    failed: type[errors.ProviderFailed]
    unavailable: type[errors.ProviderUnavailable]

    def unusable(self, reason: str, **private: Any) -> errors.ProviderFailed:
        """The error for an answer that came, but cannot be what was asked for."""
        return self.failed(
            f"{self.name} gave an answer that cannot be used: {reason}",
            hint="check that the base URL and the model belong together",
            private=private,
        )

    def base_url(self, configured: str | None) -> str:
        """The base URL as requests need it: one without a path gets the version that the vendor's paths begin with."""
        if configured is None:
            return self.url
        parts = urlsplit(configured)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ConfigError(
                "a provider's base URL must begin with http:// or https:// and name a host",
                hint=f"for example {self.url}",
            )
        if parts.username is not None or parts.password is not None:
            raise ConfigError("a provider's base URL must not hold a password", hint="give the key as the key")
        if parts.path.strip("/"):
            return configured.rstrip("/")
        return f"{parts.scheme}://{parts.netloc}{urlsplit(self.url).path}"

    def key(self, configured: str | None) -> str | None:
        """The key as it is sent; None when there is none."""
        key = (configured or "").strip()
        if not (key.isascii() and key.isprintable()):
            # Said here, because the HTTP library would say it with the key in the message.
            raise self.auth("the API key holds characters that no key has", hint="check where the key is configured")
        return key or None


MISTRAL = Vendor(
    "Mistral",
    "https://api.mistral.ai/v1",
    errors.MistralAuth,
    errors.MistralRateLimited,
    errors.MistralFailed,
    errors.MistralUnavailable,
)
OPENAI = Vendor(
    "the OpenAI-compatible endpoint",
    "https://api.openai.com/v1",
    errors.OpenAIAuth,
    errors.OpenAIRateLimited,
    errors.OpenAIFailed,
    errors.OpenAIUnavailable,
)
COHERE = Vendor(
    "the Cohere-compatible endpoint",
    "https://api.cohere.com/v2",
    errors.CohereAuth,
    errors.CohereRateLimited,
    errors.CohereFailed,
    errors.CohereUnavailable,
)
