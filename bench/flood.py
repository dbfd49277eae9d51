"""Ordinary traffic at a steady pace, as a program of its own: `python -m bench.flood JSON`, until killed.

The argument says `bootstrap`, `topic_prefix`, `partitions` of the raw topics, `pods` (a list of namespace, pod and node), how
many lines of those pods' progress are written a second (`relevant_per_s`, each of which is a signal), and how many of what nodes
say all day, of which none is (`other_per_s`).
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime
from itertools import cycle, islice
from typing import Any

import orjson
from aiokafka import AIOKafkaProducer

from bench.chatter import ordinary
from streams.kafka.topics import RAW_JOB_LOGS, RAW_NODE_LOGS
from tests.end_to_end import shippers

EVERY_S = 0.02
"""How often lines go out. A shipper's own batches are larger; smaller ones cost every process behind it more."""

_USUAL = 20_000


async def main(options: dict[str, Any]) -> None:
    """Write lines until killed."""
    producer = AIOKafkaProducer(bootstrap_servers=options["bootstrap"], acks=1)
    await producer.start()
    usual = cycle(list(islice(ordinary(11, datetime.now(UTC)), _USUAL)))
    relevant, other = (round(options[name] * EVERY_S) for name in ("relevant_per_s", "other_per_s"))
    partitions = options["partitions"]
    pods, step, told = options["pods"], 1000, 0
    loop = asyncio.get_running_loop()
    begun, turn = loop.time(), 0
    while True:
        moving = []
        for _ in range(relevant):
            namespace, pod, node = pods[told % len(pods)]
            moving.append(orjson.dumps(shippers.iteration(namespace, pod, node, step)))
            told += 1
            step += told % len(pods) == 0
        for topic, lines in ((RAW_JOB_LOGS, moving), (RAW_NODE_LOGS, list(islice(usual, other)))):
            batch = producer.create_batch()
            for line in lines:
                batch.append(key=None, value=line, timestamp=int(time.time() * 1000))
            batch.close()
            await producer.send_batch(
                batch, options["topic_prefix"] + topic.name, partition=turn % partitions
            )
        turn += 1
        await asyncio.sleep(max(0.0, begun + turn * EVERY_S - loop.time()))


if __name__ == "__main__":
    asyncio.run(main(orjson.loads(sys.argv[1])))
