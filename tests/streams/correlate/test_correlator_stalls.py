"""A stream that is up and delivers nothing must end the process: that is what restarts it, and nothing is lost by it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from faust.types import TP

from sandbox.emulated import broker
from streams.config.settings import CorrelatorSettings, KafkaSettings
from streams.correlate import Engine, consumption, ownership
from streams.correlate.process import Correlator
from streams.model.errors import Unreachable
from streams.model.pulse import PARTITIONS, WAIT_S, WAITS_FOR, Pulse
from tests.clocks import Watch
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.embedded


@pytest.fixture
async def kafka_settings(tmp_path: Path) -> AsyncIterator[KafkaSettings]:
    async with broker.running(KafkaSettings(), log=tmp_path / "broker.log") as running:
        # Whoever gets no CPU for a session joins its group anew, and a stream that was suspended then goes on.
        yield running.settings.model_copy(update={"session_timeout_ms": 60_000})


def correlator(settings: KafkaSettings, pulse: Pulse) -> Correlator:
    return Correlator(
        settings,
        CorrelatorSettings(tick_s=0.2, session_timeout_ms=60_000),
        lambda cluster, rows: Engine(cluster, rows),
        pulse=pulse,
    )


async def ready(pulse: Pulse) -> None:
    async def is_ready() -> bool:
        return pulse.is_ready

    await eventually(is_ready, "the correlator works")


async def test_a_stream_that_falls_silent_ends_the_process(
    kafka_settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "SILENCE_S", 2.0)
    pulse = Pulse()
    running = correlator(kafka_settings, pulse)
    task = asyncio.ensure_future(running.run())
    await ready(pulse)
    running._app.flow_control.suspend()  # what a stalled fetcher looks like from the outside
    with pytest.raises(Unreachable, match="not even our own ticks"):
        await asyncio.wait_for(task, 120)


async def test_a_join_that_never_ends_ends_the_process(
    kafka_settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "JOINING_S", -2 * kafka_settings.session_timeout_ms / 1000 + 2)
    monkeypatch.setattr(Correlator, "_take_ownership", lambda *_, **__: None)
    with pytest.raises(Unreachable, match="joining the group did not end"):
        await asyncio.wait_for(correlator(kafka_settings, Pulse()).run(), 120)


async def test_while_its_group_does_not_settle_it_is_alive_and_says_so(
    kafka_settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Correlator, "_take_ownership", lambda *_, **__: None)
    clock = Watch()
    pulse = Pulse(clock=clock)
    running = correlator(kafka_settings, pulse)
    task = asyncio.ensure_future(running.run())

    async def waits() -> bool:
        return pulse.lag is not None and pulse.states.get(WAITS_FOR) == PARTITIONS

    try:
        await eventually(waits, "it has started and waits")
        clock.now = WAIT_S
        assert (pulse.is_alive, pulse.is_ready) == (True, False)
        running._ownership.settled = True
        await ready(pulse)
        assert pulse.states == {}
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("answer", [True, False])
async def test_a_partition_that_is_lost_during_the_question_is_lost_whatever_the_answer(
    kafka_settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch, answer: bool
) -> None:
    asking = correlator(kafka_settings, Pulse())

    class Consumer:
        async def owns(self, tp: TP) -> bool:
            asking._lose_ownership()
            held.settled = True
            return answer

    held = asking._ownership
    monkeypatch.setattr(asking._app, "consumer", Consumer())
    held._pauses, held.settled = 1, True
    assert not await held.holds(0, held.term)
    assert held.settled
