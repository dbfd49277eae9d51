"""Runs one process until SIGTERM or SIGINT, with its probes and a bounded shutdown."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from importlib.metadata import version
from typing import Any, NoReturn

import structlog

from faultline.runtime.health import health_server
from faultline.runtime.settings import Settings
from streams.kafka import installation, provisioning
from streams.kafka.plain_errors import named_refusals
from streams.model.pulse import KAFKA, Pulse
from streams.telemetry import metrics as shown
from streams.telemetry import tracing
from streams.telemetry.registry import Metrics

GRACE_S = 50.0
"""How long a shutdown may take. Kubernetes kills after 60 s; exiting before that leaves a log line that says why."""

STATUS_S = 180.0
"""How often a process logs its status."""

LOOK_AROUND_S = 5.0
"""How often the broker is asked where partitions end, and what is counted by looking at it is counted."""

log = structlog.get_logger(__name__)


def _nothing() -> None:
    """The default for `look`."""


async def serve(
    name: str,
    settings: Settings,
    work: Callable[[Pulse, Metrics], Awaitable[None]],
    *,
    look: Callable[[], None] = _nothing,
    beside: Sequence[Callable[[Metrics], Coroutine[Any, Any, object]]] = (),
) -> None:
    """Check the topics, answer the probes, and do `work` until SIGTERM or SIGINT. `look` is called about once a second; what is
    in `beside` runs along with the work, and ends it when it fails.

    Raises:
        ConfigError: when the topics do not match the configuration, or are bound to another cluster.
        FaultlineError: whatever ends the work.
    """
    log.info(
        "starting",
        version=version("faultline"),
        cluster=settings.cluster,
        kafka=settings.kafka.bootstrap,
        topic_prefix=settings.kafka.topic_prefix,
        **({"mode": settings.responder.mode.value} if name == "responder" else {}),
    )
    with named_refusals(settings.kafka):
        await _serve(name, settings, work, look, beside)
    log.info("stopped")


async def _serve(
    name: str,
    settings: Settings,
    work: Callable[[Pulse, Metrics], Awaitable[None]],
    look: Callable[[], None],
    beside: Sequence[Callable[[Metrics], Coroutine[Any, Any, object]]],
) -> None:
    pulse, metrics = Pulse(), Metrics(name).with_process()
    show_process(metrics, pulse)
    # A kubelet counts a probe that nobody answers as failed, too: it would restart a process that Kafka keeps waiting.
    async with health_server(pulse, host=settings.http_host, port=settings.http_port, metrics=metrics):
        with pulse.waiting(KAFKA):
            await provisioning.verify(settings.kafka)
            by = f"{name} on {socket.gethostname()}"
            is_held = await installation.hold(settings.kafka, settings.cluster, by)
        along: list[Coroutine[Any, Any, object]] = [
            _log_status(pulse, look), _look_around(metrics), *(one(metrics) for one in beside),
        ]  # fmt: skip
        if is_held:
            along.append(installation.watch_on(settings.kafka, settings.cluster))
        task = asyncio.ensure_future(_together(work(pulse, metrics), along))
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _stop, name, task, stopping)
        try:
            await task
        except asyncio.CancelledError:
            if not stopping.is_set():
                raise


def show_process(metrics: Metrics, pulse: Pulse) -> None:
    """Have the metrics tell what the probes tell, and which version this is."""
    metrics.set(shown.BUILD_INFO, 1, version("faultline"), metrics.component)
    metrics.read_at_scrape(shown.SPANS, tracing.outcomes)
    metrics.read_at_scrape(shown.READY, lambda: {(): float(pulse.is_ready)})
    metrics.read_at_scrape(shown.STALLED, lambda: {(): float(not pulse.is_alive)})
    metrics.read_at_scrape(
        shown.LAST_PROGRESS,
        lambda: {(loop,): time.time() - silent_s for loop, silent_s in pulse.silences.items()},
    )


async def _look_around(metrics: Metrics) -> NoReturn:
    while True:
        await metrics.look_around()
        await asyncio.sleep(LOOK_AROUND_S)


async def _log_status(pulse: Pulse, look: Callable[[], None]) -> NoReturn:
    """Log a status line every few minutes: whether the process is ready, its counters and its lag."""
    clock = asyncio.get_running_loop().time
    due = clock() + STATUS_S
    while True:
        await asyncio.sleep(1.0)
        look()
        if clock() >= due:
            due = clock() + STATUS_S
            log.info("status", ready=pulse.is_ready, within_s=STATUS_S, **await pulse.report())


async def _together(work: Awaitable[None], beside: Sequence[Coroutine[Any, Any, object]]) -> None:
    """Run the work. Tasks beside it end with it, and end it when they fail."""
    main = asyncio.ensure_future(work)
    tasks = [main, *(asyncio.ensure_future(one) for one in beside)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        # An error of the work counts even if the work was cancelled because of another task.
        if not main.cancelled() and (error := main.exception()) is not None:
            raise error


def _stop(name: str, task: asyncio.Future[None], stopping: asyncio.Event) -> None:
    """Cancel once, and exit after the grace period: a library may hang while closing."""
    if stopping.is_set():
        return
    stopping.set()
    log.info("stopping")
    task.cancel()
    last_resort = threading.Timer(GRACE_S, _give_up, (name,))
    last_resort.daemon = True
    last_resort.start()


def _give_up(name: str) -> None:
    log.error("graceful shutdown timed out, exiting", grace_s=GRACE_S)
    os._exit(1)
