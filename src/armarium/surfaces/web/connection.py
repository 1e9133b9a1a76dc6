"""What a connection does while it is served: in the end, it goes away."""

from __future__ import annotations

import anyio
from starlette.types import Receive

_ENDINGS = frozenset({"http.disconnect", "websocket.disconnect"})


async def cancel_when_gone(receive: Receive, work: anyio.CancelScope) -> None:
    """Cancel the work once nobody is left at the other end. What they may still say is not listened to."""
    while (await receive())["type"] not in _ENDINGS:
        pass
    work.cancel()
