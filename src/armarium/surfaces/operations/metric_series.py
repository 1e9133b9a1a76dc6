"""Metrics over time, sampled into memory: every five seconds for an hour, and every minute for a day."""

from __future__ import annotations

import math
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import anyio
from prometheus_client import CollectorRegistry

from armarium.foundation.processes.memory import resident_bytes

STEP_S: Final = 5.0
_PER_MINUTE: Final = 12
_POINTS: Final = {"1h": 720, "24h": 1440}
STEPS_S: Final[Mapping[str, float]] = {"1h": STEP_S, "24h": STEP_S * _PER_MINUTE}

Window = Literal["1h", "24h"]
Kind = Literal["value", "rate", "p95"]
_NOTHING: Final = math.nan


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot, and the metric that it is calculated from."""

    name: str
    unit: str
    metric: str
    """The name of its samples in the text format of Prometheus; for `p95`, without `_bucket`."""
    kind: Kind
    factor: float = 1.0
    """Converts the metric to the unit."""
    threshold: str | None = None
    """The metric above whose value an operator should act, if there is one."""


SERIES: Final = (
    Series("calls", "per second", "armarium_calls_total", "rate"),
    Series("errors", "per second", "armarium_errors_total", "rate"),
    Series("refused", "per second", "armarium_requests_refused_total", "rate"),
    Series("call_p95", "ms", "armarium_call_duration_seconds", "p95", factor=1000),
    Series("in_flight", "calls", "armarium_calls_in_flight", "value"),
    Series("sessions", "sessions", "armarium_sessions", "value"),
    Series("index_queue", "jobs", "mcp_files_index_queue_depth", "value"),
    Series(
        *("index_lag_p95", "s", "mcp_files_index_visibility_lag_ms", "p95"),
        factor=0.001,
        threshold="mcp_files_index_slo_p95_seconds",
    ),
    Series("memory", "bytes", "process_resident_memory", "value"),
)
"""All series. `process_resident_memory` is ours: the registry of a server has no metrics of its process."""


class MetricSeries:
    """The last day of a server's metrics. A metric that the server does not have is a series without values."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.time) -> None:
        self._registry = registry
        self._clock = clock
        self._before: _Totals | None = None
        self._samples = 0
        self._last_at = 0.0
        self._minute: dict[str, list[float]] = {each.name: [] for each in SERIES}
        self._points: dict[Window, dict[str, _LastPoints]] = {
            window: {each.name: _LastPoints(_POINTS[window]) for each in SERIES} for window in ("1h", "24h")
        }
        self._thresholds: dict[str, float] = {}

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            self.sample()
            await anyio.sleep(STEP_S)

    def sample(self) -> None:
        """Add a point to every series."""
        now = _totals(self._registry)
        now.values["process_resident_memory"] = float(resident_bytes() or _NOTHING)
        self._last_at, self._samples = self._clock(), self._samples + 1
        for each in SERIES:
            value = now.point(each, self._before)
            self._points["1h"][each.name].append(value)
            self._minute[each.name].append(value)
            if each.threshold is not None and each.threshold in now.values:
                self._thresholds[each.name] = now.values[each.threshold]
        if self._samples % _PER_MINUTE == 0:
            for each in SERIES:
                minute = [value for value in self._minute[each.name] if not math.isnan(value)]
                # The mean of rates and values; of times the worst, so that a short peak stays visible.
                summary = max if each.kind == "p95" else _mean
                self._points["24h"][each.name].append(summary(minute) if minute else _NOTHING)
                self._minute[each.name].clear()
        self._before = now

    def values(self, name: str, window: Window) -> list[float | None]:
        """The points of a series, the oldest first; None where there was nothing to measure."""
        return [None if math.isnan(value) else round(value, 4) for value in self._points[window][name].read()]

    def threshold(self, name: str) -> float | None:
        """The value above which an operator should act."""
        return self._thresholds.get(name)

    def last_at(self, window: Window) -> float:
        """When the newest point was added."""
        return self._last_at - (self._samples % _PER_MINUTE) * STEP_S * (window == "24h")


class _LastPoints:
    def __init__(self, size: int) -> None:
        self._points = array("d", bytes(8 * size))
        self._added = 0

    def append(self, value: float) -> None:
        self._points[self._added % len(self._points)] = value
        self._added += 1

    def read(self) -> Iterable[float]:
        """The points, the oldest first."""
        size = len(self._points)
        return (self._points[index % size] for index in range(max(0, self._added - size), self._added))


@dataclass(frozen=True, slots=True)
class _Totals:
    """All metrics at one moment, summed over their labels."""

    at: float
    values: dict[str, float]
    buckets: dict[str, dict[float, float]]
    """The cumulated counts of histograms by the upper bound."""

    def point(self, series: Series, before: _Totals | None) -> float:
        if series.kind == "value":
            return self.values.get(series.metric, _NOTHING) * series.factor
        if before is None:
            return _NOTHING
        if series.kind == "rate":
            seconds = self.at - before.at
            if series.metric not in self.values or seconds <= 0:
                return _NOTHING
            return max(0.0, self.values[series.metric] - before.values.get(series.metric, 0.0)) / seconds
        earlier = before.buckets.get(series.metric, {})
        now = self.buckets.get(series.metric, {})
        return _p95([(bound, count - earlier.get(bound, 0.0)) for bound, count in sorted(now.items())]) * series.factor


def _totals(registry: CollectorRegistry) -> _Totals:
    values, buckets = defaultdict[str, float](float), defaultdict[str, dict[float, float]](lambda: defaultdict(float))
    for family in registry.collect():
        for sample in family.samples:
            if (bound := sample.labels.get("le")) is not None and sample.name.endswith("_bucket"):
                buckets[sample.name.removesuffix("_bucket")][float(bound)] += sample.value
            else:
                values[sample.name] += sample.value
    return _Totals(time.monotonic(), dict(values), dict(buckets))


def _p95(cumulated: Sequence[tuple[float, float]]) -> float:
    """The 95th percentile of a histogram, interpolated like PromQL's `histogram_quantile`."""
    if not cumulated or cumulated[-1][1] <= 0:
        return _NOTHING
    rank = 0.95 * cumulated[-1][1]
    for (low, below), (high, count) in pairwise([(0.0, 0.0), *cumulated]):
        if count >= rank:
            return low if math.isinf(high) else low + (high - low) * (rank - below) / (count - below)
    return cumulated[-1][0]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
