"""The peer, run in its own environment: a fastmcp proxy in front of the server whose URL is the only argument.

It prints its port.
"""

from __future__ import annotations

import socket
import sys

from fastmcp.server import create_proxy  # type: ignore[import-not-found]


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    print(port, flush=True)
    proxy = create_proxy(sys.argv[1])
    proxy.run(transport="http", host="127.0.0.1", port=port, show_banner=False, log_level="ERROR")


main()
