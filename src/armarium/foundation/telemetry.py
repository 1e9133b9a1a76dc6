"""Structured logs, metrics and traces."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from armarium.foundation.errors import ConfigError
from armarium.foundation.security.network import is_local

_log = logging.getLogger(__name__)

_OWN_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_FIELDS = "armarium_fields"
_LEVELS = {"WARNING": "WARN"}

# A collector that does not respond must not delay the end of the server. The export times out first, so that its
# thread does not write to the log while the interpreter shuts down.
_EXPORT_TIMEOUT_S = 0.8
_LAST_EXPORT_S = 1.0


def log_fields(logger: logging.Logger, level: int, message: str, fields: dict[str, Any]) -> None:
    """Log a message with these fields. Faster than `Logger.log`, because it does not look up the calling line: every
    tool call logs one message."""
    if logger.isEnabledFor(level):
        record = logging.LogRecord(logger.name, level, "", 0, message, (), None)
        setattr(record, _FIELDS, fields)
        logger.handle(record)


def timestamp(moment: datetime | None = None) -> str:
    """ISO 8601 in UTC with microseconds, the format of all our timestamps."""
    return (moment or datetime.now(UTC)).isoformat(timespec="microseconds").replace("+00:00", "Z")


class JsonLines(logging.Formatter):
    """Formats each log record as a JSON object with time, level, message and the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": timestamp(datetime.fromtimestamp(record.created, UTC)),
            "level": _LEVELS.get(record.levelname, record.levelname),
            "msg": record.getMessage(),
        }
        fields: dict[str, Any] | None = getattr(record, _FIELDS, None)
        line |= fields or {name: value for name, value in vars(record).items() if name not in _OWN_ATTRIBUTES}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def log_as_json(level: str) -> None:
    """Write all log records of the process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    # Our own message for each call has more than their messages for each request.
    for chatty in ("mcp", "uvicorn", "uvicorn.error", "uvicorn.access", "httpx2"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


class Metrics:
    """The metrics at /metrics. Each server has its own collector registry."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        """Capabilities add their own metrics here."""
        self.calls = Counter("armarium_calls", "Tool calls.", ["capability", "tool", "outcome"], registry=registry)
        self.errors = Counter("armarium_errors", "Failed calls by code.", ["capability", "code"], registry=registry)
        self.duration = Histogram(
            "armarium_call_duration_seconds",
            "How long tool calls took.",
            ["capability", "tool"],
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
            registry=registry,
        )
        self.in_flight = Gauge("armarium_calls_in_flight", "Calls being worked on.", registry=registry)
        self.sessions = Gauge("armarium_sessions", "Open MCP sessions.", registry=registry)
        self.refused = Counter("armarium_requests_refused", "Requests the gate refused.", ["status"], registry=registry)

    def exposition(self) -> bytes:
        """The metrics in Prometheus text format."""
        return generate_latest(self.registry)


def export_traces(endpoint: str, service: str) -> Callable[[], None]:
    """Send the spans of every MCP request to an OpenTelemetry collector over OTLP/HTTP. The returned function sends the
    remaining ones."""
    try:
        import requests
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            "telemetry.otlp_endpoint is set, but the otel extra is not installed", hint="pip install 'armarium[otel]'"
        ) from error

    # The SDK's own shutdown waits for the collector, up to thirty seconds.
    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    session = requests.Session()
    session.trust_env = not is_local(endpoint)
    # A redirect could lead to a host that the setting `network` excludes.
    session.max_redirects = 0
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_TIMEOUT_S, session=session)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)

    def close() -> None:
        ending = threading.Thread(target=provider.shutdown, name="last-traces", daemon=True)
        ending.start()
        ending.join(_LAST_EXPORT_S)
        if ending.is_alive():
            _log.warning("the last traces were dropped: the collector does not respond")

    return close
