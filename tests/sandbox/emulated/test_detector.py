"""The detector on the embedded broker, which has no admin API and keeps no group state of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sandbox.emulated import broker as embedded
from streams.config.settings import DetectorSettings
from streams.detect.process import DetectorProcess
from streams.kafka.clients import producer, started, topic_name
from streams.kafka.topics import RAW_METRICS, RAW_NODE_LOGS
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.machinery, pytest.mark.embedded]


async def test_it_reads_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with embedded.running(log=tmp_path / "broker.log") as broker:
        # Long enough for a process that gets no CPU for some seconds, and would read and count again what it has not committed.
        settings = broker.settings.model_copy(update={"session_timeout_ms": 15_000})
        writer = await started(producer(settings), settings)
        try:
            for _ in ("at first", "after a restart"):
                for topic in (RAW_NODE_LOGS, RAW_METRICS):
                    line = b"[ 1.2] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
                    await writer.send_and_wait(topic_name(settings, topic), line, key=b"gpu-1")
                process = DetectorProcess(settings, DetectorSettings(), cluster="c1")
                task = asyncio.create_task(process.run())

                async def both_read(process: DetectorProcess = process) -> bool:
                    return [process.counts[t.name].signals for t in (RAW_NODE_LOGS, RAW_METRICS)] == [1, 1]

                await eventually(both_read, "both records gave their signal")
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        finally:
            await writer.stop()
