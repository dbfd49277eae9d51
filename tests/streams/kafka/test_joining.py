"""A member that waits for its group is not taken for one that hangs: a restart would have all of them wait anew."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox.emulated import broker
from streams.config.settings import DetectorSettings, KafkaSettings
from streams.detect.process import DetectorProcess
from streams.kafka.fenced_store import DocumentType
from streams.kafka.partition_owner import PartitionOwner
from streams.kafka.topics import COMMANDS, CONTROLS, RUNS
from streams.model.control import Control
from streams.model.pulse import PARTITIONS, STATE, WAIT_S, WAITS_FOR, Pulse
from tests.clocks import Watch
from tests.testbed.waiting import eventually

JOIN_GROUP, INIT_PRODUCER_ID = 11, 22
COORDINATOR_LOAD_IN_PROGRESS = 14
REFUSALS = 20
"""A client asks again every tenth of a second."""


async def detector(settings: KafkaSettings, pulse: Pulse) -> None:
    await DetectorProcess(settings, DetectorSettings(), cluster="c1", pulse=pulse).run()


async def owner(settings: KafkaSettings, pulse: Pulse) -> None:
    documents = DocumentType(process="owner", topic=RUNS, kind=Control, key=lambda c: c.cluster)
    member = PartitionOwner(settings, documents, replayed=(CONTROLS,), followed=(COMMANDS,), pulse=pulse)
    try:
        while True:
            await member.poll()
            pulse.ready()
    finally:
        await member.stop()


@pytest.mark.embedded
@pytest.mark.parametrize(
    ("process", "refused", "what"),
    [(detector, JOIN_GROUP, PARTITIONS), (owner, JOIN_GROUP, PARTITIONS), (owner, INIT_PRODUCER_ID, STATE)],
    ids=["detector joins", "owner joins", "owner fences its predecessor"],
)
async def test_a_member_whose_coordinator_still_loads_is_alive_and_then_works(
    process: Callable[[KafkaSettings, Pulse], Awaitable[None]], refused: int, what: str, tmp_path: Path
) -> None:
    clock = Watch()
    pulse = Pulse(clock=clock)

    async def waits() -> bool:
        return pulse.states.get(WAITS_FOR) == what

    async def is_ready() -> bool:
        return pulse.is_ready

    async with broker.running(log=tmp_path / "broker.log") as kafka:
        await kafka.fail_next(refused, *[COORDINATOR_LOAD_IN_PROGRESS] * REFUSALS)
        running = asyncio.ensure_future(process(kafka.settings, pulse))
        try:
            await eventually(waits, f"it waits for {what}")
            clock.now = WAIT_S
            assert (pulse.is_alive, pulse.is_ready) == (True, False)
            clock.now = WAIT_S + 1
            assert not pulse.is_alive
            await eventually(is_ready, "it is ready")
            assert pulse.states == {}
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
