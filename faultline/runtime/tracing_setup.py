"""Switches tracing on for one process, where an endpoint is set."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import structlog

from faultline.runtime.settings import Settings
from streams.telemetry import tracing

log = structlog.get_logger(__name__)


@contextmanager
def traced(settings: Settings, component: str) -> Iterator[None]:
    """Spans of `component` while the context lasts, and at its end a moment for the last of them. Nothing without an endpoint."""
    if settings.tracing.endpoint is None:
        yield
        return
    from streams.telemetry.export import OtlpTracer

    tracer = OtlpTracer(
        settings.tracing,
        component=component,
        version=version("faultline"),
        instance=f"{socket.gethostname()}-{os.getpid()}",
    )
    try:
        with tracing.installed(tracer):
            yield
    finally:
        tracer.close()
        counts = tracer.counts
        log.info("spans", sent=counts.sent, failed=counts.failed, dropped=counts.dropped)
