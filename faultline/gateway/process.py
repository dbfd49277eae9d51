"""The gateway process: follows the topics, serves HTTP, and runs beside it what else is configured."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NoReturn

import structlog

from faultline.gateway.app import BESIDE, GatewayParts, build_app
from faultline.gateway.raw_records import RawRecords
from faultline.gateway.server import served
from faultline.live_view.decisions import Decisions
from faultline.live_view.follow import follow
from faultline.live_view.view import LiveView
from runbooks.language.schema import Runbook
from streams.config.connector_settings import SlackSettings
from streams.config.console_settings import ConsoleSettings
from streams.config.gateway_settings import GatewaySettings
from streams.config.settings import KafkaSettings
from streams.model.clock import Clock, utc_now
from streams.model.pulse import Pulse
from streams.telemetry import metrics as shown
from streams.telemetry.registry import Metrics

log = structlog.get_logger(__name__)


class Gateway:
    """The gateway process. Ready once everything written before its start is in its view. Several run side by side."""

    def __init__(
        self,
        kafka: KafkaSettings,
        settings: GatewaySettings,
        *,
        cluster: str,
        slack: SlackSettings,
        console: ConsoleSettings | None = None,
        runbooks: Sequence[Runbook] | None = None,
        pulse: Pulse,
        metrics: Metrics | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self._kafka = kafka
        self._pulse = pulse
        self._metrics = metrics or Metrics("gateway")
        view = LiveView()
        self._parts = GatewayParts(
            settings=settings,
            view=view,
            decisions=Decisions(
                kafka,
                view,
                timeout_s=settings.kafka_timeout_s,
                on_sent=lambda command: self._metrics.add(shown.COMMANDS_SENT, 1, command.verb, command.via),
            ),
            records=RawRecords(kafka, timeout_s=settings.kafka_timeout_s),
            cluster=cluster,
            slack=slack,
            console=console,
            runbooks=runbooks,
            clock=clock,
            count=pulse.count,
            on_delivery=partial(self._metrics.add, shown.HOOK_DELIVERIES, 1),
        )

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            Unreachable: when no broker answers.
            ConfigError: when a topic does not exist, or the address cannot be listened on.
        """
        parts = self._parts
        async with AsyncExitStack() as stack:
            for client in (parts.decisions, parts.records):
                stack.push_async_callback(client.close)
                await client.start()
            if parts.settings.port:
                port = await stack.enter_async_context(served(build_app(parts), parts.settings))
                log.info("listening", host=parts.settings.host, port=port)
            await _together(
                follow(self._kafka, parts.view, pulse=self._pulse, metrics=self._metrics, clock=parts.clock),
                *(work(parts) for work in BESIDE),
            )


async def _together(*works: Coroutine[Any, Any, NoReturn]) -> None:
    """Run all until cancelled, or until one fails."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
