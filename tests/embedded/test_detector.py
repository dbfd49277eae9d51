"""The detector on the embedded broker, which has no admin API and keeps no group state of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from faultline.embedded import broker as embedded
from streams.detector import DetectorProcess
from streams.kafka import producer, started, topic_name
from streams.model.settings import DetectorSettings
from streams.topics import RAW_METRICS, RAW_NODE_LOGS
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(60)]


async def test_it_reads_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with embedded.running(log=tmp_path / "broker.log") as broker:
        settings = broker.settings
        writer = await started(producer(settings), settings)
        try:
            for total in (1, 1):
                for topic in (RAW_NODE_LOGS, RAW_METRICS):
                    line = b"[ 1.2] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
                    await writer.send_and_wait(topic_name(settings, topic), line, key=b"gpu-1")
                process = DetectorProcess(settings, DetectorSettings(), cluster="c1")
                task = asyncio.create_task(process.run())

                async def both_read(process: DetectorProcess = process, total: int = total) -> bool:
                    return [process.counts[t.name].signals for t in (RAW_NODE_LOGS, RAW_METRICS)] == [
                        total
                    ] * 2

                await eventually(both_read, "both records gave their signal")
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        finally:
            await writer.stop()
