"""Errors of hosted and local models, each with a stable code."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError


class ProviderError(ArmariumError):
    """A model could not be used."""

    @property
    def retry_after_s(self) -> float | None:
        return self.details.get("retry_after_s")


class ProviderAuth(ProviderError):
    """The API key is missing, invalid or not permitted to use the model."""


class ProviderRateLimited(ProviderError):
    """The provider's rate limit is exceeded."""

    retryable = True


class ProviderFailed(ProviderError):
    """The provider rejected the request, or its response is invalid. The same request would fail again."""


class ProviderUnavailable(ProviderFailed):
    """The provider is unreachable, failed, or closed the connection. The same request may succeed later."""

    retryable = True


class LocalModelMissing(ProviderError):
    """The libraries or the weights of the local model are not installed."""

    code = "LOCAL_MODEL_MISSING"


class LocalModelCorrupt(ProviderError):
    """The installed weights are not the ones this release was built for."""

    code = "LOCAL_MODEL_CORRUPT"


class EmbedderClosed(ProviderError):
    """The embedder was closed before it embedded the text."""

    code = "EMBEDDER_CLOSED"
