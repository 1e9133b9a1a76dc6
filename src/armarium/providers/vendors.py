"""The supported providers: default base URL and error classes of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from armarium.foundation.errors import ConfigError
from armarium.providers import errors

_Error = TypeVar("_Error", bound=errors.ProviderError)


@dataclass(frozen=True, slots=True)
class Vendor:
    """A provider, or any endpoint with a compatible API."""

    name: str
    url: str
    """The default base URL."""
    auth: type[errors.ProviderAuth]
    rate_limited: type[errors.ProviderRateLimited]
    failed: type[errors.ProviderFailed]
    unavailable: type[errors.ProviderUnavailable]

    def unusable(self, reason: str, **private: Any) -> errors.ProviderFailed:
        return self.failed(
            f"{self.name} sent an invalid response: {reason}",
            hint="check that the endpoint serves the configured model",
            private=private,
        )

    def base_url(self, configured: str | None) -> str:
        """The base URL of requests. A configured URL without a path gets the path of the default one, such as `/v1`."""
        if configured is None:
            return self.url
        parts = urlsplit(configured)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ConfigError(
                "a provider's base URL must begin with http:// or https:// and name a host",
                hint=f"for example {self.url}",
            )
        if parts.username is not None or parts.password is not None:
            raise ConfigError("a provider's base URL must not contain a password", hint="configure the API key instead")
        if parts.path.strip("/"):
            return configured.rstrip("/")
        return f"{parts.scheme}://{parts.netloc}{urlsplit(self.url).path}"

    def key(self, configured: str | None) -> str | None:
        """The API key without surrounding whitespace; None when there is none."""
        key = (configured or "").strip()
        if not (key.isascii() and key.isprintable()):
            # Checked here, because the error message of the HTTP library would contain the key.
            raise self.auth("the API key contains invalid characters", hint="check where the key is configured")
        return key or None


def _vendor(word: str, name: str, url: str, *, rate_limit: str) -> Vendor:
    """A vendor with errors of its own, such as `OpenAIAuth` with the code `OPENAI_AUTH`."""
    subject = name[0].upper() + name[1:]

    def define(base: type[_Error], code: str, about: str) -> type[_Error]:
        body = {"__doc__": about, "__module__": __name__, "code": f"{word.upper()}_{code}"}
        return cast("type[_Error]", type(base.__name__.replace("Provider", word), (base,), body))

    auth = define(errors.ProviderAuth, "AUTH", f"{subject} rejected the API key.")
    limited = define(errors.ProviderRateLimited, "RATE_LIMIT", f"{rate_limit} did not clear before the deadline.")
    reasons = "rejected the request, failed, or sent an invalid response; see `retryable`"
    failed = define(errors.ProviderFailed, "FAILED", f"{subject} {reasons}.")
    unavailable = type(f"{word}Unavailable", (errors.ProviderUnavailable, failed), {"__module__": __name__})
    return Vendor(name, url, auth, limited, failed, unavailable)


MISTRAL = _vendor("Mistral", "Mistral", "https://api.mistral.ai/v1", rate_limit="Mistral's rate limit")
OPENAI = _vendor(
    "OpenAI",
    "the OpenAI-compatible endpoint",
    "https://api.openai.com/v1",
    rate_limit="The rate limit of the OpenAI-compatible endpoint",
)
COHERE = _vendor(
    "Cohere",
    "the Cohere-compatible endpoint",
    "https://api.cohere.com/v2",
    rate_limit="The rate limit of the Cohere-compatible endpoint",
)
