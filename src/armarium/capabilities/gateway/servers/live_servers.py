"""The servers behind the gateway as their files name them, taken over anew whenever the files change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import anyio
from anyio import to_thread

from armarium.capabilities.gateway.config.files import (
    FILE_NAMES,
    SEARCH_ORDER,
    RegistryFile,
    ServerSpec,
    read_registry,
)
from armarium.capabilities.gateway.errors import RegistryInvalid
from armarium.capabilities.gateway.model import Member
from armarium.capabilities.gateway.upstreams.types import UpstreamHealth
from armarium.capabilities.gateway.upstreams.upstream_set import SetChanges, Upstreams
from armarium.foundation.events import Events, PublicEvent

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_SETTLED_AFTER_S = 0.2
"""A file is read when it has not changed for so long: an editor may write it in several steps."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What taking the files over anew changed."""

    changes: SetChanges
    at: datetime


class LiveServers:
    """Who is behind the gateway now. A set of files is taken over whole, or not at all."""

    def __init__(self, config_dir: Path, upstreams: Upstreams, events: Events, *, admin_group: str) -> None:
        self.config_dir = config_dir
        self.upstreams = upstreams
        self._events = events
        self._admins = frozenset({admin_group})
        self._turn = anyio.Lock()
        self._listeners: list[Callable[[SetChanges], None]] = []
        self.registry = RegistryFile({}, {kind: {} for kind in FILE_NAMES}, dict.fromkeys(FILE_NAMES))
        self.last_reload: datetime | None = None
        self.last_problem: RegistryInvalid | None = None
        """Why the files that are there now are not those that count; None when they are."""
        self._looked_at: object = None
        """The signature of the files when they were last read, whoever had them read."""

    def current(self) -> Mapping[str, Member]:
        """Every enabled server, by name."""
        return {upstream.name: Member(upstream.spec, upstream) for upstream in self.upstreams.all()}

    def on_reload(self, listener: Callable[[SetChanges], None]) -> None:
        """Tell somebody what every reload changed."""
        self._listeners.append(listener)

    async def reload(self) -> Reloaded:
        """Take over the files as they are now. `RegistryInvalid` when they cannot be: then all stays as it was."""
        async with self._turn:
            # Before they are read: what changes meanwhile is read again.
            self._looked_at = self._signature()
            try:
                registry = await to_thread.run_sync(read_registry, self.config_dir)
            except RegistryInvalid as error:
                self.last_problem = error
                await self._events.publish(
                    PublicEvent("server_registry_refused", {"problems": list(error.problems)}, self._admins)
                )
                raise
            changes = await self.upstreams.apply(registry.servers)
            self.registry, self.last_problem = registry, None
            self.last_reload = datetime.now(UTC)
            for listener in self._listeners:
                listener(changes)
        # Names of servers are for those who may see them: everybody is only told to look again.
        at = self.last_reload.isoformat(timespec="milliseconds")
        await self._events.publish(PublicEvent("server_registry_updated", {"at": at}))
        named = {"added": changes.added, "removed": changes.removed, "changed": changes.changed}
        told = {kind: list(names) for kind, names in named.items()}
        await self._events.publish(PublicEvent("server_registry_changes", {"at": at, **told}, self._admins))
        return Reloaded(changes, self.last_reload)

    async def watch(self) -> None:
        """Reload when a file changed, until cancelled. By looking, since files and folders may come and go."""
        while True:
            await anyio.sleep(_LOOK_EVERY_S)
            seen = self._signature()
            if seen == self._looked_at:
                continue
            await anyio.sleep(_SETTLED_AFTER_S)
            # Whoever changed them may have had them read since: a change by an administrator is no news.
            if self._signature() != seen or seen == self._looked_at:
                continue
            try:
                await self.reload()
            except RegistryInvalid as error:
                _log.warning("the files of servers are not taken over", extra={"problems": list(error.problems)})

    async def tell_health(self, health: UpstreamHealth) -> None:
        """A server is well again, or is not any more."""
        upstream = self.upstreams.get(health.server)
        if upstream is not None:
            data = {"server": health.server, "state": health.state}
            await self._events.publish(PublicEvent("server_health_changed", data, self._who_sees(upstream.spec)))

    def _who_sees(self, spec: ServerSpec) -> frozenset[str] | None:
        if spec.groups:
            return frozenset(spec.groups) | self._admins
        return self._admins if spec.is_exclusive else None

    def _signature(self) -> tuple[tuple[int, int, int] | None, ...]:
        """What changes whenever one of the files does."""
        files = [self.config_dir / folder / name for folder in SEARCH_ORDER for name in FILE_NAMES.values()]
        return tuple(map(_mark, files))


def _mark(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
