"""What can go wrong with a hosted model, each with the vendor's stable code."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError


class ProviderError(ArmariumError):
    """A model could not be used."""

    @property
    def retry_after_s(self) -> float | None:
        """How long the vendor asked to be left alone, where it said so."""
        return self.details.get("retry_after_s")


class ProviderAuth(ProviderError):
    """The key is missing, wrong or not allowed to use the model."""


class ProviderRateLimited(ProviderError):
    """Asked too often."""

    retryable = True


class ProviderFailed(ProviderError):
    """The request was refused, or its answer cannot be used. The same request would fail again."""


class ProviderUnavailable(ProviderFailed):
    """The vendor could not be reached, failed, or broke off. The same request may work later."""

    retryable = True


class MistralAuth(ProviderAuth):
    """Mistral does not accept the key."""

    code = "MISTRAL_AUTH"


class MistralRateLimited(ProviderRateLimited):
    """Mistral wants fewer requests, and waiting for it took too long."""

    code = "MISTRAL_RATE_LIMIT"


class MistralFailed(ProviderFailed):
    """Mistral refused the request, failed, or gave an answer that cannot be used; `retryable` tells which."""

    code = "MISTRAL_FAILED"


class MistralUnavailable(MistralFailed, ProviderUnavailable):
    """Mistral could not be reached, failed, or broke off."""

    retryable = True


class OpenAIAuth(ProviderAuth):
    """The OpenAI-compatible endpoint does not accept the key."""

    code = "OPENAI_AUTH"


class OpenAIRateLimited(ProviderRateLimited):
    """The OpenAI-compatible endpoint wants fewer requests, and waiting for it took too long."""

    code = "OPENAI_RATE_LIMIT"


class OpenAIFailed(ProviderFailed):
    """The OpenAI-compatible endpoint refused, failed, or gave an unusable answer; `retryable` tells which."""

    code = "OPENAI_FAILED"


class OpenAIUnavailable(OpenAIFailed, ProviderUnavailable):
    """The OpenAI-compatible endpoint could not be reached, failed, or broke off."""

    retryable = True


class CohereAuth(ProviderAuth):
    """The Cohere-compatible endpoint does not accept the key."""

    code = "COHERE_AUTH"


class CohereRateLimited(ProviderRateLimited):
    """The Cohere-compatible endpoint wants fewer requests, and waiting for it took too long."""

    code = "COHERE_RATE_LIMIT"


class CohereFailed(ProviderFailed):
    """The Cohere-compatible endpoint refused, failed, or gave an unusable answer; `retryable` tells which."""

    code = "COHERE_FAILED"


class CohereUnavailable(CohereFailed, ProviderUnavailable):
    """The Cohere-compatible endpoint could not be reached, failed, or broke off."""

    retryable = True
