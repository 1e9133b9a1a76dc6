"""Tells `make soak`, where chance decides, from `make test`, where every run is the same."""

from __future__ import annotations

import os
import random


def is_soak() -> bool:
    """Whether this is a run of `make soak`."""
    return os.environ.get("SOAK") == "1"


def chance(seed: int | str) -> random.Random:
    """A source of chance: `seed` decides in `make test`, a new seed in `make soak`, which is printed.

    Set `SOAK_SEED` to a printed seed to repeat that run.
    """
    if is_soak():
        seed = os.environ.get("SOAK_SEED") or random.SystemRandom().getrandbits(32)
        print(f"SOAK_SEED={seed}")
    return random.Random(str(seed))
