"""Defaults, error codes and alerts of the store are those that the contract names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from armarium.capabilities.store import errors
from armarium.capabilities.store.metrics import StoreMetrics
from armarium.capabilities.store.settings import StoreSettings
from armarium.foundation.telemetry import Metrics

ALERTS = Path(__file__).parents[3] / "config" / "store-alerts.yaml"
CODES = [
    "NOT_FOUND", "ALREADY_EXISTS", "IS_DIRECTORY", "NOT_DIRECTORY", "INVALID_PATH", "INVALID_OFFSET", "INVALID_QUERY",
    "NOT_EMPTY", "PERMISSION_DENIED", "PAYLOAD_TOO_LARGE", "QUOTA_EXCEEDED", "RATE_LIMITED", "RESOURCE_BUSY",
    "SEARCH_BACKEND_ERROR",
]  # fmt: skip


@pytest.mark.contract("S9.6-4", "S9.7-3", "S12-1", "S12-3", "S15-4")
@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("allow_root_wipe", False),
        ("list_limit_default", 256),
        ("search.enabled", True),
        ("search.limit_default", 5),
        ("search.limit_max", 20),
        ("search.vector_candidates", 30),
        ("search.bm25_candidates", 30),
        ("search.rerank.model", "rerank-v3.5"),
        ("search.rerank.endpoint", "https://oneapi.laisky.com/v1/rerank"),
        ("index.slo_p95_seconds", 30),
        ("security.credential_cache_prefix", "mcp:files:cred"),
        ("security.credential_cache_ttl_seconds", 300),
    ],
)
def test_the_defaults_are_those_of_the_contract(name: str, default: Any) -> None:
    value: Any = StoreSettings()
    for step in name.split("."):
        value = getattr(value, step)
    assert value == default


@pytest.mark.contract("S13-1")
def test_every_code_of_the_contract_exists() -> None:
    known = {each.code for each in vars(errors).values() if isinstance(each, type) and hasattr(each, "code")}
    assert set(CODES) <= known
    retryable = {each.code for each in vars(errors).values() if getattr(each, "retryable", False) is True}
    assert retryable & set(CODES) == {"RATE_LIMITED", "RESOURCE_BUSY", "SEARCH_BACKEND_ERROR"}


@pytest.mark.contract("S18.3-1")
def test_the_alerts_of_the_contract_use_metrics_that_exist() -> None:
    metrics = Metrics()
    StoreMetrics(metrics.registry, slo_p95_seconds=30)
    kinds = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",), "gauge": ("",)}
    exposed = {f"{family.name}{suffix}" for family in metrics.registry.collect() for suffix in kinds[family.type]}
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    rules = {rule["alert"]: set(re.findall(r"(?:mcp_files|armarium)_\w+", rule["expr"])) for rule in group["rules"]}
    assert set().union(*rules.values()) <= exposed
    assert "mcp_files_index_visibility_lag_ms_bucket" in rules["StoreIndexingLagsBehind"]
    assert "mcp_files_search_rerank_fail_total" in rules["StoreRerankerFails"]
    assert 'code="RESOURCE_BUSY"' in next(rule["expr"] for rule in group["rules"] if "Busy" in rule["alert"])
