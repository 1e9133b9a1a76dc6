"""Runs `armarium` and writes the hosts that it looks up or connects to, other than this machine, to a file."""

from __future__ import annotations

import ipaddress
import sys
from pathlib import Path
from typing import Any

import anyio


def main() -> None:
    record, arguments = Path(sys.argv[1]), sys.argv[2:]
    record.touch()

    def note(event: str, details: tuple[Any, ...]) -> None:
        if event not in ("socket.connect", "socket.getaddrinfo"):
            return
        host = details[1][0] if event == "socket.connect" and isinstance(details[1], tuple) else details[0]
        host = host.decode() if isinstance(host, bytes) else host
        if isinstance(host, str) and not _is_here(host):
            with record.open("a") as file:
                file.write(f"{host}\n")

    sys.addaudithook(note)
    run = anyio.run
    # The hook does not see the connections that uvloop makes.
    anyio.run = lambda function, *args, **options: run(function, *args)  # pyright: ignore[reportUnknownLambdaType]
    from armarium.surfaces.cli.main import run as armarium

    sys.exit(armarium(arguments))


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    main()
