"""`GET /api/status` and `GET /api/metrics/series`: what runs, and how it went in the last hour or day."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NotRequired

from prometheus_client import Gauge
from pydantic import Field
from typing_extensions import TypedDict

from armarium import __version__
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.processes.memory import resident_bytes
from armarium.foundation.security.access import READ, Access
from armarium.foundation.telemetry import Metrics, timestamp
from armarium.foundation.tools import Args, Call, NoArgs
from armarium.surfaces.operations.metric_series import SERIES, STEPS_S, MetricSeries, Window


class CapabilityStatus(TypedDict):
    name: str
    ready: bool


class ServerLoad(TypedDict):
    sessions: int
    calls_in_flight: int
    memory_bytes: NotRequired[int]
    free_disk_bytes: NotRequired[int]
    """What is free where the server keeps its state."""


class ServerStatus(TypedDict):
    version: str
    started_at: str
    uptime_s: int
    capabilities: list[CapabilityStatus]
    """Those that the caller may read."""
    features: dict[str, bool]
    load: NotRequired[ServerLoad]
    """Only for callers who may read the metrics."""


class SeriesArgs(Args):
    window: Window = "1h"
    """The last hour, with a point every five seconds, or the last day, with a point every minute."""
    names: str | None = Field(default=None, max_length=500)
    """Only these series, separated by commas."""


class SeriesPoints(TypedDict):
    name: str
    unit: str
    threshold: NotRequired[float]
    """The value above which an operator should act."""
    values: list[float | None]
    """The oldest first. The last one is of `until`."""


class SeriesAnswer(TypedDict):
    step_s: float
    until: str
    series: list[SeriesPoints]


@dataclass(frozen=True, slots=True)
class ServedCapability:
    """An open capability, as far as its status needs it."""

    access: Access
    is_ready: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class StatusTools:
    """The status of a server, and its metrics over time."""

    capabilities: Sequence[ServedCapability]
    metrics: Metrics
    series: MetricSeries
    state_dir: Path
    features: dict[str, bool]
    may_read_metrics: Callable[[Call], bool]
    started_at: float = field(default_factory=time.time)

    async def status(self, call: Call, args: NoArgs) -> ServerStatus:
        """Show what the server is and does: its version, its capabilities and whether they are ready. Callers who may
        read the metrics also see its load."""
        found: ServerStatus = {
            "version": __version__,
            "started_at": timestamp(datetime.fromtimestamp(self.started_at, UTC)),
            "uptime_s": round(time.time() - self.started_at),
            "capabilities": [
                {"name": each.access.capability, "ready": each.is_ready()}
                for each in self.capabilities
                if each.access.admits(call.principal, READ)
            ],
            "features": self.features,
        }
        if self.may_read_metrics(call):
            found["load"] = self._load()
        return found

    def _load(self) -> ServerLoad:
        load: ServerLoad = {
            "sessions": _value(self.metrics.sessions),
            "calls_in_flight": _value(self.metrics.in_flight),
        }
        if (memory := resident_bytes()) is not None:
            load["memory_bytes"] = memory
        with suppress(OSError):
            load["free_disk_bytes"] = shutil.disk_usage(self.state_dir).free
        return load

    async def metric_series(self, call: Call, args: SeriesArgs) -> SeriesAnswer:
        """Show the metrics of the server over the last hour or day."""
        known = {each.name: each for each in SERIES}
        names = list(known) if args.names is None else args.names.split(",")
        if unknown := [name for name in names if name not in known]:
            hint = f"one of {', '.join(known)}"
            raise InvalidArgument(f"there is no series {unknown[0][:40]}", hint=hint, field="names")
        return {
            "step_s": STEPS_S[args.window],
            "until": timestamp(datetime.fromtimestamp(self.series.last_at(args.window), UTC)),
            "series": [self._points(name, known[name].unit, args.window) for name in names],
        }

    def _points(self, name: str, unit: str, window: Window) -> SeriesPoints:
        points: SeriesPoints = {"name": name, "unit": unit, "values": self.series.values(name, window)}
        if (threshold := self.series.threshold(name)) is not None:
            points["threshold"] = threshold
        return points


def _value(gauge: Gauge) -> int:
    """Its value. Looking it up by its name would collect all metrics."""
    metric = next(iter(gauge.collect()))
    return round(metric.samples[0].value)
