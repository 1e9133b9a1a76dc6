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


class ProviderRateLimited(ProviderError, retryable=True):
    """The provider's rate limit is exceeded."""


class ProviderFailed(ProviderError):
    """The provider rejected the request, or its response is invalid. The same request would fail again."""


class ProviderUnavailable(ProviderFailed, retryable=True):
    """The provider is unreachable, failed, or closed the connection. The same request may succeed later."""


class LocalModelMissing(ProviderError, code="LOCAL_MODEL_MISSING"):
    """The libraries or the weights of the local model are not installed."""


class LocalModelCorrupt(ProviderError, code="LOCAL_MODEL_CORRUPT"):
    """The installed weights are not the ones this release was built for."""


class EmbedderClosed(ProviderError, code="EMBEDDER_CLOSED"):
    """The embedder was closed before it embedded the text."""
