"""Metrics over time: rates, percentiles and values, for the last hour and the last day."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from armarium.foundation.telemetry import Metrics
from armarium.surfaces.operations import metric_series
from armarium.surfaces.operations.metric_series import SERIES, MetricSeries
from support.manual_clock import ManualClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock()
    monkeypatch.setattr(metric_series.time, "monotonic", clock)
    return clock


def test_a_rate_is_the_difference_of_two_samples_by_their_time(clock: ManualClock) -> None:
    metrics = Metrics()
    series = MetricSeries(metrics.registry, clock)
    series.sample()
    metrics.calls.labels("sandbox", "read_file", "success").inc(6)
    metrics.calls.labels("store", "file_read", "error").inc(4)
    clock.advance(5)
    series.sample()
    assert series.values("calls", "1h") == [None, 2.0]
    assert series.last_at("1h") == clock.now


def test_a_percentile_is_that_of_the_time_between_two_samples(clock: ManualClock) -> None:
    metrics = Metrics()
    slow, quick = metrics.duration.labels("sandbox", "grep"), metrics.duration.labels("sandbox", "stat_file")
    series = MetricSeries(metrics.registry, clock)
    slow.observe(40)
    series.sample()
    for _ in range(100):
        quick.observe(0.0005)
    clock.advance(5)
    series.sample()
    clock.advance(5)
    series.sample()
    first, second, third = series.values("call_p95", "1h")
    assert first is None
    assert second == pytest.approx(0.95)
    assert third is None, "nothing was called"


def test_what_the_server_does_not_have_is_a_series_without_values(clock: ManualClock) -> None:
    series = MetricSeries(Metrics().registry, clock)
    series.sample()
    clock.advance(5)
    series.sample()
    assert series.values("index_lag_p95", "1h") == [None, None]
    assert series.values("in_flight", "1h") == [0.0, 0.0]
    memory = series.values("memory", "1h")[-1]
    assert memory is not None
    assert memory > 1_000_000


def test_the_threshold_is_the_target_of_the_store(clock: ManualClock) -> None:
    registry = CollectorRegistry()
    Gauge("mcp_files_index_slo_p95_seconds", "Target.", registry=registry).set(30)
    lag = Histogram("mcp_files_index_visibility_lag_ms", "Lag.", buckets=(100, 1000), registry=registry)
    series = MetricSeries(registry, clock)
    series.sample()
    lag.observe(50)
    clock.advance(5)
    series.sample()
    assert series.threshold("index_lag_p95") == 30
    assert series.threshold("calls") is None
    assert series.values("index_lag_p95", "1h")[-1] == pytest.approx(0.095)


def test_a_day_has_a_point_for_every_minute_with_its_worst_percentile(clock: ManualClock) -> None:
    metrics = Metrics()
    quick = metrics.duration.labels("sandbox", "stat_file")
    series = MetricSeries(metrics.registry, clock)
    for number in range(25):
        quick.observe(20 if number == 7 else 0.0005)
        metrics.calls.labels("sandbox", "stat_file", "success").inc(10)
        series.sample()
        clock.advance(5)
    assert len(series.values("calls", "24h")) == 2
    assert series.values("calls", "24h") == [2.0, 2.0]
    worst, best = series.values("call_p95", "24h")
    assert worst is not None
    assert worst > 10_000
    assert best == pytest.approx(0.95)
    assert series.last_at("24h") == clock.now - 10


def test_an_hour_is_kept_and_no_more(clock: ManualClock) -> None:
    registry = CollectorRegistry()
    calls = Counter("armarium_calls", "Calls.", registry=registry)
    series = MetricSeries(registry, clock)
    for _ in range(900):
        series.sample()
        calls.inc()
        clock.advance(5)
    values = series.values("calls", "1h")
    assert len(values) == 720
    assert not any(value is None or math.isnan(value) for value in values)


def test_every_threshold_is_one_that_an_alert_uses() -> None:
    alerts = yaml.safe_load((Path(__file__).parents[3] / "config" / "store-alerts.yaml").read_text())
    expressions = " ".join(rule["expr"] for group in alerts["groups"] for rule in group["rules"])
    thresholds = [each for each in SERIES if each.threshold is not None]
    assert thresholds
    for each in thresholds:
        assert each.threshold is not None
        assert each.threshold in expressions
        assert each.metric in expressions
