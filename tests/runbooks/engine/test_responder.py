"""The responder on a real broker: killed at every point, frozen and woken, it changes everything exactly once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from runbooks.engine.process import Responder
from runbooks.language.loader import load_text
from streams.config.settings import KafkaSettings, ResponderSettings
from streams.kafka.topics import COMMANDS, DEAD_LETTERS, RUNS, SIGNALS, TIMELINE
from streams.model.codec import decode, encode
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.errors import BadInput
from streams.model.incident import Certainty
from streams.model.run import Mode, Run, RunState
from streams.model.signal import SignalBatch
from tests.runbooks.engine.responder_child import BOOK, FolderWorld
from tests.runbooks.herd import PARTITION, Herd, calls, fresh, hit, over, prepared, run_of
from tests.runbooks.scenes import CLUSTER
from tests.runbooks.topics import committed, settled, write
from tests.testbed.children import Child
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import PATIENCE_S, eventually, patience
from tests.tiers import sample

pytestmark = pytest.mark.kafka

STEPS = ("open_ticket", "cordon_node", "suspend_job", "drain_node", "resume_job")


async def gave_up(woken: Child) -> bool:
    """Whether it found out that the partition is no longer its own."""
    log = woken.log.read_bytes()
    return b"partition lost" in log or b"not written down" in log


@pytest.mark.parametrize(
    "point", sample(["before_intent", "after_intent", "after_call", "after_commit"], "after_call")
)
async def test_killed_at_this_point_of_every_step_it_makes_every_change_once(
    kafka: Kafka, tmp_path: Path, herds: list[Herd], point: str
) -> None:
    settings = await prepared(kafka)
    herd = Herd(settings, tmp_path)
    herds.append(herd)
    at = tuple(f"{action}:{point}" for action in STEPS)

    async def lived_through() -> Run | None:
        if not herd.children or herd.children[-1].exit_code is not None:
            herd.start("KILL", at)
        return await over(settings)

    run = await eventually(lived_through, "the run is over", timeout_s=240)
    assert run.state is RunState.SUCCEEDED
    # The ticket and the cordon may be written down by one commit, and then one death is all there is to die. And who has no
    # processor for longer than its session may lose the partition before that commit, and then finds the change by looking.
    assert sum(hit(tmp_path, label) for label in at) >= len(STEPS) - 2 * (point == "after_commit")
    assert Counter(call[1] for call in calls(tmp_path)) == dict.fromkeys(STEPS, 1)
    order = [call[1] for call in calls(tmp_path) if call[1] != "open_ticket"]
    assert order == list(STEPS[1:])


async def test_a_frozen_responder_that_wakes_after_its_time_makes_no_call(
    kafka: Kafka, tmp_path: Path, herds: list[Herd]
) -> None:
    settings = await prepared(kafka)
    herd = Herd(settings, tmp_path)
    herds.append(herd)
    frozen = herd.start("STOP", ("cordon_node:after_intent",))

    async def is_frozen() -> bool:
        return hit(tmp_path, "cordon_node:after_intent")

    await eventually(is_frozen, "the first responder is frozen before its call")
    successor = herd.start()
    run = await eventually(lambda: over(settings), "the successor ends the run")
    assert run.state is RunState.SUCCEEDED

    os.kill(frozen.pid, signal.SIGCONT)
    await eventually(lambda: gave_up(frozen), "the woken one finds out that it is fenced")
    made = [call for call in calls(tmp_path) if call[1] != "open_ticket"]
    assert {int(call[0]) for call in made} == {successor.pid}
    assert Counter(call[1] for call in calls(tmp_path)) == dict.fromkeys(STEPS, 1)
    assert await over(settings) == run


async def test_one_that_sleeps_through_two_rebalances_goes_on_where_the_other_one_left(
    kafka: Kafka, tmp_path: Path, herds: list[Herd]
) -> None:
    """The partition goes away and comes back, and the sleeper knows of neither when it wakes."""
    settings = await prepared(kafka)
    herd = Herd(settings, tmp_path)
    herds.append(herd)
    sleeper = herd.start("STOP", ("cordon_node:after_intent",))

    async def sleeps() -> bool:
        return hit(tmp_path, "cordon_node:after_intent")

    await eventually(sleeps, "the first responder is frozen before its call")
    other = herd.start(gated=["suspend_job"])

    async def has_gone_on() -> bool:
        return (tmp_path / "waiting-suspend_job").exists()

    await eventually(has_gone_on, "the other one has closed the node")
    other.kill()
    os.kill(sleeper.pid, signal.SIGCONT)
    run = await eventually(lambda: over(settings), "the sleeper ends the run")
    assert run.state is RunState.SUCCEEDED
    made = calls(tmp_path)
    assert Counter(call[1] for call in made) == dict.fromkeys(STEPS, 1)
    by = {call[1]: int(call[0]) for call in made}
    assert by["cordon_node"] == other.pid
    assert by["suspend_job"] == by["drain_node"] == sleeper.pid


@pytest.mark.parametrize("clock_s", [-60.0, 60.0])
async def test_clocks_that_differ_by_a_minute_let_no_two_owners_make_one_call(
    kafka: Kafka, tmp_path: Path, herds: list[Herd], clock_s: float
) -> None:
    """By the clock of one behind, its lease began a minute ago when it is taken over: the session keeps the two apart."""
    settings = await prepared(kafka)
    herd = Herd(settings, tmp_path)
    herds.append(herd)
    frozen = herd.start("STOP", ("cordon_node:after_intent",), clock_s=clock_s)

    async def is_frozen() -> bool:
        return hit(tmp_path, "cordon_node:after_intent")

    await eventually(is_frozen, "the first responder is frozen before its call")
    herd.start()

    async def owns() -> bool:
        return b"step.inherited" in b"".join(
            value for _, value in await committed(settings, TIMELINE, PARTITION) if value
        )

    await eventually(owns, "the successor has taken the run over")
    os.kill(frozen.pid, signal.SIGCONT)
    run = await eventually(lambda: over(settings), "the run is over")
    assert run.state is RunState.SUCCEEDED
    # Who makes them is open: the woken one joins the group anew, and may be given its partition back.
    assert Counter(call[1] for call in calls(tmp_path)) == dict.fromkeys(STEPS, 1)
    await eventually(lambda: gave_up(frozen), "the woken one finds out that it is fenced")


async def test_timeline_signals_and_offsets_are_written_with_the_run(kafka: Kafka, tmp_path: Path) -> None:
    about = fresh(certainty=Certainty.LIKELY)
    settings = await prepared(kafka, about)
    task = asyncio.create_task(responder(settings, tmp_path).run())
    try:

        async def awaiting() -> Run | None:
            run = await run_of(settings)
            return run if run is not None and run.state is RunState.AWAITING_APPROVAL else None

        waiting = await eventually(awaiting, "the run asks")
        assert [call[1] for call in calls(tmp_path)] in ([], ["open_ticket"])
        command = Command(
            "c1", about.id, CLUSTER, Verb.APPROVE, "ada", about.updated_at, digest=waiting.plan.digest
        )
        await write(
            settings,
            COMMANDS,
            PARTITION,
            (about.id, b"{broken"),
            (about.id, encode(command)),
            (about.id, None),
        )
        await eventually(lambda: over(settings), "the run is over")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    batches = [
        decode(SignalBatch, value) for _, value in await settled(settings, SIGNALS, PARTITION) if value
    ]
    kinds = [s.kind for b in batches for s in b.signals]
    assert kinds == ["run.started", "run.awaiting_approval", "run.started", "run.finished"]
    said = [
        decode(TimelineEntry, value) for _, value in await settled(settings, TIMELINE, PARTITION) if value
    ]
    assert any(e.actor == "ada" and e.event == "person.approved" for e in said)
    dead = await settled(settings, DEAD_LETTERS, 0)
    assert [value for _, value in dead] == [b"{broken"]


async def test_a_run_that_a_newer_version_has_written_stops_an_older_one_before_it_acts(
    kafka: Kafka, tmp_path: Path
) -> None:
    """In a rolling upgrade the partition may come back to a process of the version before."""
    settings = await prepared(kafka)
    newer = b'{"id":"run-0123456789abcdef","schema":99,"state":"a state of tomorrow"}'
    await write(settings, RUNS, PARTITION, ("run-0123456789abcdef", newer))
    async with asyncio.timeout(patience(PATIENCE_S)):
        with pytest.raises(BadInput, match=rf"runs:{PARTITION}:0 .*schema: 99 is newer"):
            await responder(settings, tmp_path).run()
    assert calls(tmp_path) == []
    assert [value for _, value in await committed(settings, RUNS, PARTITION)] == [newer]


async def test_in_shadow_nothing_is_called(kafka: Kafka, tmp_path: Path) -> None:
    settings = await prepared(kafka)
    task = asyncio.create_task(responder(settings, tmp_path, Mode.SHADOW).run())
    try:
        run = await eventually(lambda: over(settings), "the shadow run is over")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert run.state is RunState.SHADOWED
    assert calls(tmp_path) == []


def responder(settings: KafkaSettings, folder: Path, mode: Mode = Mode.AUTO) -> Responder:
    policy = ResponderSettings(mode=mode, lease_s=5.0)
    return Responder(settings, policy, [FolderWorld(folder)], [load_text(BOOK, "book.yaml")])
