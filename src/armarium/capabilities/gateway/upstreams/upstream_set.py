"""All servers behind the gateway by name; a new set is applied without disturbing unchanged servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import TracebackType
from typing import Self

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.upstreams.types import UpstreamHealth, UpstreamLimits
from armarium.capabilities.gateway.upstreams.upstream import Upstream, UpstreamListeners
from armarium.capabilities.gateway.upstreams.watchdog import Watchdog


@dataclass(frozen=True, slots=True)
class ServerChanges:
    """The names of servers that changed with a new set."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()


@dataclass(eq=False)
class UpstreamSet:
    """An async context manager; `apply` sets the servers, and leaving the context closes them."""

    limits: UpstreamLimits
    listeners: UpstreamListeners = field(default_factory=UpstreamListeners)
    _: KW_ONLY
    drain_s: float = 5.0

    def __post_init__(self) -> None:
        self._watchdog = Watchdog()
        self._tasks: TaskGroup | None = None
        self._upstreams: dict[str, Upstream] = {}
        self._leaving: set[Upstream] = set()

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        # Shielded: a server process must not outlive the gateway. Every wait inside is bounded.
        with anyio.CancelScope(shield=True):
            drain_s = self.drain_s if error is None else 0.0
            async with anyio.create_task_group() as closing:
                for upstream in (*self._upstreams.values(), *self._leaving):
                    closing.start_soon(upstream.close, drain_s)
            await to_thread.run_sync(self._watchdog.close)
        self._upstreams.clear()
        self._tasks.cancel_scope.cancel()
        if isinstance(error, Exception):
            # Raise the error of the block itself, not an exception group.
            await self._tasks.__aexit__(None, None, None)
            return None
        return await self._tasks.__aexit__(kind, error, trace)

    async def apply(self, specs: Mapping[str, ServerSpec]) -> ServerChanges:
        """Replace the set of servers. Unchanged servers keep their connection; removed ones drain in the background."""
        tasks = self._tasks
        assert tasks is not None, "used outside of its context"
        wanted = {name: spec for name, spec in sorted(specs.items()) if spec.enabled}
        before = {name: upstream.spec for name, upstream in self._upstreams.items()}
        changes = ServerChanges(
            added=tuple(name for name in wanted if name not in before),
            removed=tuple(name for name in before if name not in wanted),
            changed=tuple(name for name, spec in wanted.items() if before.get(name, spec) != spec),
            unchanged=tuple(name for name, spec in wanted.items() if before.get(name) == spec),
        )
        kept: dict[str, Upstream] = {}
        for name, spec in wanted.items():
            known = self._upstreams.get(name)
            if known is not None and _shares_connection(known.spec, spec):
                known.spec = spec
                kept[name] = known
            else:
                kept[name] = Upstream(spec, self.limits, tasks, self._watchdog, self.listeners)
        leaving = [upstream for name, upstream in self._upstreams.items() if kept.get(name) is not upstream]
        # One assignment, so that readers never see a partial set.
        self._upstreams = kept
        for upstream in leaving:
            self._leaving.add(upstream)
            tasks.start_soon(self._drain, upstream)
        return changes

    def get(self, name: str) -> Upstream | None:
        return self._upstreams.get(name)

    def all(self) -> list[Upstream]:
        return list(self._upstreams.values())

    def health(self) -> list[UpstreamHealth]:
        return [upstream.health() for upstream in self._upstreams.values()]

    async def _drain(self, upstream: Upstream) -> None:
        try:
            await upstream.close(self.drain_s)
        finally:
            self._leaving.discard(upstream)


def _shares_connection(one: ServerSpec, other: ServerSpec) -> bool:
    """Whether the same connection serves both, because only display data or access rules differ."""
    return one.transport == other.transport and one.timeouts == other.timeouts and one.kind == other.kind
