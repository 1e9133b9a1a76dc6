"""Listening sockets and TLS contexts."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from armarium.foundation.errors import BindFailed, TlsConfigInvalid


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Bind it first, so that the port is known, and taken, before anything else starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise BindFailed(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="choose another address or port"
        ) from error
    listening.listen(2048)
    listening.setblocking(False)
    return listening


def base_address(listening: socket.socket, *, tls: bool = False) -> str:
    """The URL of the address that a socket is bound to, without a path."""
    host, port = listening.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """What encrypts connections, from a certificate (with its chain) and its key, both PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for what, file in (("certificate", certificate), ("key", key)):
        try:
            file.open("rb").close()
        except OSError as error:
            raise TlsConfigInvalid(f"cannot read the TLS {what} {file}: {error.strerror}") from error
    try:
        # A key with a passphrase must not make OpenSSL ask for it on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise TlsConfigInvalid(
            f"{certificate} and {key} are not a certificate and its key",
            hint="both must be PEM, the key without a passphrase, and belong together",
        ) from error
    return context
