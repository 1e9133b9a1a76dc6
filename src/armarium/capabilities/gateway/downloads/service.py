"""Replaces file names in the arguments of a server's tool by download links, and serves the links."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit

from armarium.capabilities.gateway.arguments import DownloadArgs
from armarium.capabilities.gateway.config.files import HttpTransport, ServerSpec
from armarium.capabilities.gateway.downloads.files import (
    NamedFile,
    check_size,
    file_in_root,
    file_size,
    is_served,
    parse_reference,
    read_file,
)
from armarium.capabilities.gateway.downloads.links import DownloadLinks
from armarium.capabilities.gateway.errors import DownloadsUnavailable, LinkExpired
from armarium.capabilities.gateway.upstreams.types import UpstreamTool
from armarium.foundation.errors import ArmariumError, InvalidArgument
from armarium.foundation.schema import Json
from armarium.foundation.security.authentication import is_loopback
from armarium.foundation.security.identity import Principal
from armarium.foundation.tools import Call

_API_ROOT: Final = "/api"
_ONE: Final = ("filename", "original_filename", "file_url")
_SEVERAL: Final = ("file_names", "original_file_names", "file_urls")
"""The arguments that name files and, if the tool has them, those for the names as given and for the links."""
_MAX_FILES: Final = 50


class Downloads:
    """The files that callers pass to servers."""

    def __init__(self, links: DownloadLinks, *, address: str | None, base_url: str | None, max_bytes: int) -> None:
        """`address` is where this server listens, `base_url` how servers elsewhere reach it."""
        self.links = links
        self._address = address
        self._base_url = base_url
        self._max_bytes = max_bytes

    async def with_links(
        self, call: Call, spec: ServerSpec, tool: UpstreamTool, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The arguments with links in place of the names of files that this caller may read."""
        declared = cast(object, tool.input_schema.get("properties"))
        names: Json = cast(Json, declared) if isinstance(declared, dict) else {}
        changed: Json = {}
        for argument, original, url in (_ONE, _SEVERAL):
            given = arguments.get(argument)
            if argument not in names or given is None:
                continue
            linked = await self._linked(call, spec, given)
            if linked != given:
                changed |= {argument: linked}
                changed |= {name: value for name, value in ((original, given), (url, linked)) if name in names}
        return {**arguments, **changed}

    def principal_of(self, name: str, token: str) -> Principal | None:
        """Whose file a link gives access to; None if the link is invalid."""
        link = self.links.find(name, token)
        return link.principal if link is not None else None

    async def download(self, call: Call, args: DownloadArgs) -> Json:
        """Send the file of a link. The link is the only authorization, and it is for this file only."""
        link = self.links.find(args.name, args.token)
        if link is None or link.principal != call.principal:
            raise LinkExpired("the link is invalid or has expired", hint="repeat the call that passed the file")
        content = await read_file(call, link.file, self._max_bytes)
        return {"name": link.name, "b64": base64.b64encode(content).decode()}

    async def _linked(self, call: Call, spec: ServerSpec, given: object) -> object:
        if isinstance(given, str):
            return await self._link(call, spec, given)
        if isinstance(given, list):
            texts = cast("list[object]", given)
            if sum(isinstance(each, str) for each in texts) > _MAX_FILES:
                raise InvalidArgument(f"`file_names` may name at most {_MAX_FILES} files", field="file_names")
            return [await self._link(call, spec, each) if isinstance(each, str) else each for each in texts]
        return given

    async def _link(self, call: Call, spec: ServerSpec, text: str) -> str:
        """The link for a name; the name itself if it names no file of this server."""
        reference = parse_reference(text)
        file: NamedFile | None = reference or await file_in_root(call, text)
        if file is None:
            return text
        try:
            size = await file_size(call, file)
        except ArmariumError as error:
            # A plain name may mean a file of the other server.
            if reference is None or not is_served(error):
                return text
            raise
        check_size(size, self._max_bytes)
        return self._base(spec) + _API_ROOT + self.links.issue(call.principal, spec.name, file)

    def _base(self, spec: ServerSpec) -> str:
        """The URL at which a server reaches this one."""
        if self._base_url is not None:
            return self._base_url.rstrip("/")
        elsewhere = isinstance(spec.transport, HttpTransport) and not is_loopback(
            urlsplit(spec.transport.url).hostname or ""
        )
        if self._address is None or elsewhere:
            raise DownloadsUnavailable(
                f"{spec.name} cannot fetch files from this server",
                hint="the operator can set `gateway.downloads.base_url`" if elsewhere else "serve over HTTP",
            )
        return self._address
