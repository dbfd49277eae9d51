"""The floor: aiokafka's `getmany` with the detector's own consumer settings, and nothing done but counting bytes."""

from __future__ import annotations

import asyncio
import sys
import time

import orjson
from aiokafka import TopicPartition

from streams.config.settings import DetectorSettings, KafkaSettings
from streams.detect.process import FETCHING
from streams.kafka import clients


async def one_pass(settings: KafkaSettings, topic: str, partitions: int, records: int) -> dict[str, float]:
    """Read `records` records from the topic's beginning; the first poll only starts the clock."""
    taken = DetectorSettings()
    consumer = clients.consumer(settings, group=None, **FETCHING)
    consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
    await consumer.start()
    done = first = size = 0
    began = cpu = 0.0
    try:
        while done < records:
            polled = await consumer.getmany(timeout_ms=taken.poll_ms, max_records=taken.batch_records)
            for batch in polled.values():
                done += len(batch)
                for record in batch:
                    size += len(record.value)
            if not first and done:
                first, began, cpu = done, time.perf_counter(), time.process_time()
    finally:
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        await consumer.stop()
    return {"per_s": (done - first) / took, "cpu_us": cpu / (done - first) * 1e6, "bytes": size}


def main() -> None:
    for line in sys.stdin:
        asked = orjson.loads(line)
        settings = KafkaSettings(**asked["settings"])
        answer = asyncio.run(one_pass(settings, asked["topic"], asked["partitions"], asked["records"]))
        print(orjson.dumps(answer).decode(), flush=True)


if __name__ == "__main__":
    main()
