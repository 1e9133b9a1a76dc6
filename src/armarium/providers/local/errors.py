"""Why a local model cannot be used."""

from __future__ import annotations

from armarium.providers.errors import ProviderError


class LocalModelMissing(ProviderError):
    """The libraries or the weights of the local model are not installed."""

    code = "LOCAL_MODEL_MISSING"


class LocalModelCorrupt(ProviderError):
    """The installed weights are not the ones this release was built for."""

    code = "LOCAL_MODEL_CORRUPT"


class EmbedderClosed(ProviderError):
    """The embedder was closed while the text waited for its vector."""

    code = "EMBEDDER_CLOSED"
