"""`armarium store worker`: indexes for the servers on the same database."""

from __future__ import annotations

import logging
import signal
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import anyio
from prometheus_client import CollectorRegistry, start_http_server

from armarium.capabilities.store.commands.operation import Operation
from armarium.capabilities.store.lifespan import open_resources
from armarium.command_line.output import show_json
from armarium.foundation.errors import ConfigError
from armarium.foundation.telemetry import log_as_json

_log = logging.getLogger("armarium")


def work(operation: Operation, workers: int | None, metrics_port: int | None) -> None:
    """Index until Ctrl-C or SIGTERM. Jobs that are not finished then return to the queue."""
    settings, section = operation.settings, operation.section
    log_as_json(settings.telemetry.log_level)
    if not section.search.enabled:
        raise ConfigError("store.search.enabled is false, so there is nothing to index")
    if section.needs_callers_keys and section.redis_url is None:
        raise ConfigError(
            "files are embedded with callers' keys, which a worker only finds in Redis",
            hint="set store.redis_url, for the servers as well",
        )
    metrics = CollectorRegistry()
    facts: dict[str, Any] = {"workers": workers or section.index.workers or 1}

    async def until_signal() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_signal, tasks.cancel_scope)
            async with open_resources(section, operation.state_dir, metrics) as resources:
                tasks.start_soon(resources.wake_up.listen)
                tasks.start_soon(resources.run_workers, facts["workers"])
                _log.info("indexing", extra=facts)
                if operation.as_json:
                    show_json(facts)
                await anyio.sleep_forever()
        _log.info("stopped")

    with ExitStack() as stack:
        if metrics_port is not None:
            facts["metrics"] = stack.enter_context(_metrics_served(metrics, settings.server.host, metrics_port))
        anyio.run(until_signal, backend_options={"use_uvloop": True})


@contextmanager
def _metrics_served(metrics: CollectorRegistry, host: str, port: int) -> Generator[str]:
    """Serve metrics to Prometheus; yields their URL."""
    try:
        server, thread = start_http_server(port, addr=host, registry=metrics)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="choose another one with --metrics-port"
        ) from error
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def _cancel_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
