"""Running one process until it is told to stop, with its probes, and an end that is certain."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable

import structlog

from faultline.health import health_server
from faultline.settings import Settings
from streams import provisioning
from streams.model.pulse import Pulse

GRACE_S = 50.0
"""How long an end may take. Kubernetes kills after 60 s; we would rather say why we did."""

log = structlog.get_logger(__name__)


async def serve(name: str, settings: Settings, work: Callable[[Pulse], Awaitable[None]]) -> None:
    """Check the topics, answer the probes, and do `work` until SIGTERM or SIGINT.

    Raises:
        ConfigError: when the topics are not as they have to be.
        FaultlineError: whatever ends the work.
    """
    await provisioning.verify(settings.kafka)
    pulse = Pulse()
    task = asyncio.ensure_future(work(pulse))
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, name, task, stopping)
    async with health_server(pulse, host=settings.http_host, port=settings.http_port):
        try:
            await task
        except asyncio.CancelledError:
            if not stopping.is_set():
                raise
    log.info("stopped", process=name)


def _stop(name: str, task: asyncio.Future[None], stopping: asyncio.Event) -> None:
    """Ask once; a library that hangs while closing must not keep the process for ever."""
    if stopping.is_set():
        return
    stopping.set()
    log.info("stopping", process=name)
    task.cancel()
    last_resort = threading.Timer(GRACE_S, _give_up, (name,))
    last_resort.daemon = True
    last_resort.start()


def _give_up(name: str) -> None:
    log.error("did not stop in time and is ended", process=name, grace_s=GRACE_S)
    os._exit(1)
