"""Emulators of providers, as local HTTP servers: `with MistralEmulator() as mistral: …`."""

from __future__ import annotations

from emulators.cohere import CohereEmulator
from emulators.faults import (
    Fault,
    Malformed,
    Overlong,
    RateLimited,
    Redirected,
    Refused,
    ServerError,
    Silent,
    Stalled,
    Together,
    Truncated,
    Unusable,
)
from emulators.mistral import MistralEmulator
from emulators.openai import OpenAIEmulator
from emulators.server import Emulator, Recorded

__all__ = [
    "CohereEmulator",
    "Emulator",
    "Fault",
    "Malformed",
    "MistralEmulator",
    "OpenAIEmulator",
    "Overlong",
    "RateLimited",
    "Recorded",
    "Redirected",
    "Refused",
    "ServerError",
    "Silent",
    "Stalled",
    "Together",
    "Truncated",
    "Unusable",
]
