"""Hears of changes in the directory as they happen."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path

import anyio

from armarium.capabilities.corpus.files.exclusion import Exclusion

_log = logging.getLogger(__name__)

_DEBOUNCE_MS = 120
_STEP_MS = 40
# A stop is noticed this late.
_WAIT_MS = 250
_RESCAN_S = 30.0


async def watch(
    root: Path, exclusion: Exclusion, changed: Callable[[Collection[str]], None], rescan: Callable[[], None]
) -> None:
    """Tell the changed paths, relative to the root, until cancelled.

    Where the system gives no notice of changes, the whole directory is looked at again from time to time.
    """
    from watchfiles import Change, awatch  # pyright: ignore[reportUnknownVariableType] a stop event may be of any kind

    def wanted(_: Change, path: str) -> bool:
        return not exclusion.excludes_path(_relative(path, root))

    try:
        async for changes in awatch(
            root,
            watch_filter=wanted,
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            rust_timeout=_WAIT_MS,
            recursive=True,
            raise_interrupt=False,
        ):
            changed({_relative(path, root) for _, path in changes})
    except OSError as error:
        _log.warning("changes are looked for from time to time", extra={"reason": error.strerror or "no notices"})
        while True:
            await anyio.sleep(_RESCAN_S)
            rescan()


def _relative(path: str, root: Path) -> str:
    return os.path.relpath(path, root)
