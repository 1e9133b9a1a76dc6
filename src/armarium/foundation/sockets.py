"""Listening sockets and TLS contexts."""

from __future__ import annotations

import logging
import socket
import ssl
from pathlib import Path

from armarium.foundation.errors import BindFailed, TlsConfigInvalid
from armarium.foundation.files.state_files import file_version
from armarium.foundation.security.network import is_loopback
from armarium.foundation.settings.model import ServerSettings, TlsSettings

_log = logging.getLogger(__name__)


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


def travels_in_clear_text(server: ServerSettings) -> bool:
    """Whether clients on other machines can connect without encryption, as far as the settings tell."""
    is_encrypted = server.tls.certificate is not None or bool(server.trusted_proxies)
    return not is_encrypted and not is_loopback(server.host)


def configured_tls(settings: TlsSettings) -> ssl.SSLContext | None:
    """The TLS context of the settings; None if they have no certificate."""
    if settings.certificate is None or settings.key is None:
        return None
    return tls_context(Path(settings.certificate).expanduser(), Path(settings.key).expanduser())


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """What encrypts connections, from a certificate (with its chain) and its key, both PEM.

    Changed files apply to new connections. If they cannot be used, the previous ones stay, and the problem is logged.
    """
    files = certificate, key
    current, read_at = _load_context(*files), [*map(file_version, files)]

    def select_certificate(connection: ssl.SSLObject, server_name: str | None, context: ssl.SSLContext) -> None:
        nonlocal current, read_at
        if (versions := [*map(file_version, files)]) != read_at:
            # Noted first: files that change again while they are read are read again.
            read_at = versions
            try:
                current = _load_context(*files)
                _log.info("the TLS certificate was read again")
            except TlsConfigInvalid as error:
                _log.error(
                    "the TLS certificate is not renewed: the files cannot be used", extra={"error": error.message}
                )
        connection.context = current

    entry = _load_context(*files)
    entry.sni_callback = select_certificate  # pyright: ignore[reportAttributeAccessIssue] typeshed knows sockets only
    return entry


def _load_context(certificate: Path, key: Path) -> ssl.SSLContext:
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
