"""The servers currently in use, reloaded whenever their configuration files change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import anyio
from anyio import to_thread

from armarium.capabilities.gateway.config.files import (
    FILE_NAMES,
    SEARCH_ORDER,
    ServerConfig,
    read_server_config,
)
from armarium.capabilities.gateway.errors import ServerConfigInvalid
from armarium.capabilities.gateway.upstreams.types import UpstreamHealth
from armarium.capabilities.gateway.upstreams.upstream_set import ServerChanges, UpstreamSet
from armarium.foundation.events import Events, PublicEvent
from armarium.foundation.files.state_files import file_version
from armarium.foundation.schema import Json

_log = logging.getLogger(__name__)


class LiveServers:
    """The servers of the configuration files. A new configuration is applied atomically."""

    def __init__(
        self,
        config_dir: Path,
        upstreams: UpstreamSet,
        events: Events,
        *,
        admin_group: str,
        environ: Mapping[str, str] | None = None,
        check_s: float = 1.0,
        settle_s: float = 0.2,
    ) -> None:
        """The files are checked every `check_s`. A changed file is read once it is unchanged for `settle_s`, since an
        editor may write it in several steps."""
        self.config_dir = config_dir
        self.upstreams = upstreams
        self._events = events
        self._admins = frozenset({admin_group})
        self.environ = environ or {}
        """The environment variables that entries may use."""
        self._check_s = check_s
        self._settle_s = settle_s
        self._lock = anyio.Lock()
        self._listeners: list[Callable[[ServerChanges], None]] = []
        self.config = ServerConfig({}, {kind: {} for kind in FILE_NAMES}, dict.fromkeys(FILE_NAMES))
        self.last_reload: datetime | None = None
        self.last_problem: ServerConfigInvalid | None = None
        """Why the files on disk are not in use; None if they are."""
        self._read_signature: object = None
        """The signature of the files when they were last read."""

    def on_reload(self, listener: Callable[[ServerChanges], None]) -> None:
        """Call `listener` with the changes of every reload."""
        self._listeners.append(listener)

    async def reload(self, write: Callable[[], object] = lambda: None) -> Json:
        """Read and apply the files, after `write` has changed them in a thread. Returns the time and the changes as
        JSON. Raises `ServerConfigInvalid` and changes nothing if they are invalid."""
        async with self._lock:
            await to_thread.run_sync(write)
            return await self._reload()

    async def _reload(self) -> Json:
        # Taken before reading, so that a change during the read triggers another reload.
        self._read_signature = self.signature()
        try:
            config = await to_thread.run_sync(read_server_config, self.config_dir, self.environ)
        except ServerConfigInvalid as error:
            self.last_problem = error
            await self._events.publish(
                PublicEvent("server_registry_refused", {"problems": list(error.problems)}, self._admins, "gateway")
            )
            raise
        changes = await self.upstreams.apply(config.servers)
        self.config, self.last_problem = config, None
        self.last_reload = datetime.now(UTC)
        for listener in self._listeners:
            listener(changes)
        # Only administrators receive server names; other callers are only notified of a change.
        at: Json = {"at": self.last_reload.isoformat(timespec="milliseconds")}
        named = {"added": list(changes.added), "removed": list(changes.removed), "changed": list(changes.changed)}
        await self._events.publish(PublicEvent("server_registry_updated", at, capability="gateway"))
        await self._events.publish(PublicEvent("server_registry_changes", at | named, self._admins, "gateway"))
        status: Json = {"status": "reloaded", "servers": sorted(config.servers)}
        return status | at | named | {"unchanged": list(changes.unchanged)}

    async def watch(self) -> None:
        """Reload when a file changes, until cancelled. Polls, since files and folders may be created and removed."""
        while True:
            await anyio.sleep(self._check_s)
            seen = self.signature()
            if seen == self._read_signature:
                continue
            await anyio.sleep(self._settle_s)
            async with self._lock:
                # A change through the API has already reloaded the files.
                if self.signature() != seen or seen == self._read_signature:
                    continue
                try:
                    await self._reload()
                except ServerConfigInvalid as error:
                    _log.warning("the server configuration is invalid", extra={"problems": list(error.problems)})

    async def publish_health(self, health: UpstreamHealth) -> None:
        upstream = self.upstreams.get(health.server)
        if upstream is not None:
            spec, data = upstream.spec, {"server": health.server, "state": health.state}
            audience = self._admins | frozenset(spec.groups) if spec.groups else None
            await self._events.publish(PublicEvent("server_health_changed", data, audience, "gateway"))

    def signature(self) -> tuple[tuple[int, ...] | None, ...]:
        """A value that changes whenever one of the files does."""
        files = [self.config_dir / folder / name for folder in SEARCH_ORDER for name in FILE_NAMES.values()]
        return tuple(map(file_version, files))
