"""Tools that come and go while the server runs, and that not every caller sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from armarium.foundation.identity import Principal
from armarium.foundation.tools import ToolSpec


class ToolShelf(Protocol):
    """What a capability offers besides its fixed tools, at this moment and to this caller.

    Asked for every list and every call, so it must answer from memory. A tool that has not changed is the same object
    each time: what is compiled for it is kept for as long as it is.
    """

    def tools_for(self, principal: Principal) -> Sequence[ToolSpec]:
        """The tools that the caller may see and call now, in the order to list them."""
        ...

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` in the event loop whenever somebody's tools may have changed, until the returned function
        is called."""
        ...
