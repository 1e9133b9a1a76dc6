"""The page of the console: the files that `scripts/console` builds, with headers that confine them."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

import anyio.to_thread
from starlette.routing import BaseRoute
from starlette.routing import Route as HttpRoute
from starlette.types import Receive, Scope, Send

from armarium.surfaces.gate import Gate, GatedApp, request_headers
from armarium.surfaces.http.responses import HttpError, respond

FILES: Final = Path(__file__).parent / "files"
"""Where the built files are. They are no part of the repository."""
PATH: Final = "/console"
HOW_TO_BUILD: Final = "run `make console` in the source tree and restart the server, or install a wheel of Armarium"
NOT_BUILT: Final = f"The console is not built: {HOW_TO_BUILD}.\n"

_ASSETS = "assets/"
_PAGE, _CANVAS = "index.html", "canvas.html"
_SCRIPT_POLICY = "script-src 'self'; require-trusted-types-for 'script'; trusted-types svelte-trusted-html"
_POLICY = (
    f"default-src 'none'; {_SCRIPT_POLICY}; style-src 'self'; img-src 'self' blob: data:; font-src 'self'; "
    "connect-src 'self'; media-src 'self' blob:; frame-src 'self'; worker-src 'self'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_CANVAS_POLICY = (
    # The frame has no origin. Styles of a report apply; its scripts, and everything that it would load, do not.
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
    "connect-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'self'; script-src"
)
"""It ends with the hash of the only script that may run."""
_HEADERS = {
    "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# The names of the assets contain hashes of their content.
_FOREVER, _NEVER = "public, max-age=31536000, immutable", "no-store"


def is_built(files: Path = FILES) -> bool:
    """Whether this installation has the files of the console."""
    return (files / _PAGE).is_file()


class ConsolePage:
    """Serves the page at every path below `/console`, which its script interprets, and its assets."""

    def __init__(self, gate: Gate, files: Path = FILES) -> None:
        self._gate = gate
        self._files = files
        self._contents: dict[str, bytes] = {}
        """What was asked for before, by name, compressed. There are no other names than those of files."""
        self.routes: list[BaseRoute] = [
            HttpRoute(PATH, GatedApp(gate, self._serve)),
            HttpRoute(PATH + "/{path:path}", GatedApp(gate, self._serve)),
        ]

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._gate.check_address(scope)
        if scope["method"] not in ("GET", "HEAD"):
            raise HttpError(405, "use GET", {"allow": "GET, HEAD"})
        wanted: str = scope["path_params"].get("path", "")
        name = wanted if wanted.startswith(_ASSETS) else _CANVAS if wanted == "canvas" else _PAGE
        content = await self._content(name)
        if content is None and name.startswith(_ASSETS):
            raise HttpError(404, "there is no such file")
        if content is None:
            plain = {"content-type": "text/plain; charset=utf-8", "cache-control": _NEVER}
            await respond(send, 503, NOT_BUILT.encode(), _HEADERS | plain)
            return
        headers = {
            **_HEADERS,
            "content-type": _MEDIA_TYPES.get(Path(name).suffix, "application/octet-stream"),
            "cache-control": _FOREVER if name.startswith(_ASSETS) else _NEVER,
            "vary": "accept-encoding",
        }
        if name == _CANVAS:
            headers["content-security-policy"] = f"{_CANVAS_POLICY} {_script_hash(gzip.decompress(content))}"
        if _takes_gzip(request_headers(scope).get(b"accept-encoding", b"")):
            headers["content-encoding"] = "gzip"
        else:
            content = gzip.decompress(content)
        if scope["method"] == "HEAD":
            await respond(send, 200, b"", headers | {"content-length": str(len(content))})
        else:
            await respond(send, 200, content, headers)

    async def _content(self, name: str) -> bytes | None:
        """The compressed content of a file, which is read when it is asked for the first time."""
        if (known := self._contents.get(name)) is None:
            known = await anyio.to_thread.run_sync(partial(_compressed, self._files, name))
            if known is not None:
                self._contents[name] = known
        return known


def _compressed(files: Path, name: str) -> bytes | None:
    # Compared with what there is, and never used as a path: it comes from the request.
    found = next((file for file in _all_files(files) if file.relative_to(files).as_posix() == name), None)
    return None if found is None else gzip.compress(found.read_bytes(), mtime=0)


def _script_hash(page: bytes) -> str:
    """The script of the page, as policies name it."""
    script = page.partition(b"<script>")[2].partition(b"</script>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'"


def _all_files(files: Path) -> Iterable[Path]:
    return (file for file in files.rglob("*") if file.is_file()) if files.is_dir() else ()


def _takes_gzip(accepted: bytes) -> bool:
    return any(each.strip().split(b";")[0] == b"gzip" for each in accepted.split(b","))
